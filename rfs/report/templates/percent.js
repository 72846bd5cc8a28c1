"use strict";
// A share as every page shows it; reasoning_from_scratch/text.py has the same function.
const percent = (share) => share > 0 && share < 0.0005 ? "< 0.1%" : (100 * share).toFixed(1) + "%";
