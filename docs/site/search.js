// The search shows each page once, at its best place, with an excerpt. Sphinx's own search lists a
// page again for every heading that matches, and has to fetch pages for their excerpts, which no
// browser does on a disk; texts.js has them.
"use strict";

const AROUND = 120; // characters on each side of the word that was found

// The paragraph that has most of the words, cut to what is around the first of them.
function excerpt(page, words) {
  const found = (text) => words.filter((word) => text.toLowerCase().includes(word)).length;
  const paragraphs = TEXTS[page] ?? [];
  const best = paragraphs.reduce((so_far, text) => (found(text) > found(so_far) ? text : so_far), "");
  const places = words.map((word) => best.toLowerCase().indexOf(word)).filter((place) => place >= 0);
  if (!places.length) return "";
  const first = Math.min(...places), from = Math.max(0, first - AROUND), to = first + 2 * AROUND;
  const cut = best.slice(from, to);
  const begun = from ? "… " + cut.slice(cut.indexOf(" ") + 1) : cut;
  return to < best.length ? begun.slice(0, begun.lastIndexOf(" ")) + " …" : begun;
}

// The text with its words marked. Only ever text, never HTML.
function marked(text, words) {
  const line = document.createElement("p");
  line.className = "context";
  for (let rest = text; rest; ) {
    const hits = words.map((word) => [rest.toLowerCase().indexOf(word), word]).filter(([place]) => place >= 0);
    const [place, word] = hits.sort(([a], [b]) => a - b)[0] ?? [rest.length, ""];
    line.append(rest.slice(0, place));
    if (word) {
      const mark = document.createElement("mark");
      mark.textContent = rest.slice(place, place + word.length);
      line.append(mark);
    }
    rest = rest.slice(place + word.length);
  }
  return line;
}

Search.query = (query) => {
  const asked = Search._parseQuery(query);
  const words = [...asked[3]].map((word) => word.toLowerCase()), seen = new Set();
  const best_first = Search._performSearch(...asked).reverse();
  const pages = best_first.filter(([page]) => !seen.has(page) && seen.add(page));
  for (const [page, title, anchor] of pages) {
    const link = document.createElement("a");
    link.href = page + DOCUMENTATION_OPTIONS.LINK_SUFFIX + anchor;
    link.textContent = title;
    const item = document.createElement("li");
    item.append(link, marked(excerpt(page, words), words));
    Search.output.append(item);
  }
  Search.stopPulse();
  Search.title.textContent = "Search results";
  Search.status.textContent = pages.length === 1 ? "One page has it." : pages.length
    ? `${pages.length} pages have it.` : "No page has it. Are all words spelled correctly?";
};
