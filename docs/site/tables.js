// A table that is wider than its place scrolls there; above it stands that it goes on, until it has
// been scrolled to its end.
"use strict";

function say_that_it_goes_on(box) {
  const hint = document.createElement("p");
  hint.className = "goes-on";
  hint.textContent = "the table goes on to the right →";
  box.before(hint);
  const show = () => {
    const rest = box.scrollWidth - box.clientWidth;
    hint.hidden = rest <= 1;
    box.classList.toggle("fades", rest - box.scrollLeft > 1);
    hint.style.visibility = box.classList.contains("fades") ? "visible" : "hidden";
  };
  box.addEventListener("scroll", show, { passive: true });
  new ResizeObserver(show).observe(box);
  show();
}

addEventListener("DOMContentLoaded", () => {
  // A cell's table scrolls with the cell's output, another one in the theme's box.
  const boxes = [...document.querySelectorAll(".bd-article table")].map((table) =>
    table.closest(".cell_output .output") ?? table.closest(".pst-scrollable-table-container"));
  new Set(boxes.filter(Boolean)).forEach(say_that_it_goes_on);
});
