// The explorable pages that a chapter frames follow its button for dark and light. A page on the disk
// may not look into another, so they ask (docs/explore/explore.js) and are told.
"use strict";

const frames = () => [...document.querySelectorAll("iframe.explorable")];

function tell(frame) {
  frame.contentWindow.postMessage({ theme: document.documentElement.dataset.theme }, "*");
}

addEventListener("message", ({ data, source }) => {
  const frame = frames().find(({ contentWindow }) => contentWindow === source);
  if (frame && data === "theme?") tell(frame);
});
new MutationObserver(() => frames().forEach(tell))
  .observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
