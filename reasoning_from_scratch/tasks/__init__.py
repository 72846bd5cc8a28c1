"""Where problems come from, and what answers and pays."""
