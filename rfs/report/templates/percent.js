"use strict";
// A share as every page shows it; reasoning_from_scratch/text.py has the same function. Python rounds
// 6.25 to the even digit, 6.2, where toFixed says 6.3.
const percent = (share) => {
  if (share > 0 && share < 0.0005) return "< 0.1%";
  const x = 100 * share;
  return (x % 1 === 0.25 ? x - 0.05 : x).toFixed(1) + "%";
};
