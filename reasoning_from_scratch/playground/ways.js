// Which of the four ways an answer is written in. The rule and the names are those of tiny/ways.py.
"use strict";

const WAYS = ["answer only", "rough", "full", "checked"];
const LINE_ENDS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/; // those of Python's splitlines

// Of a problem that somebody typed the number of steps is not known (null), and without it nobody
// can tell a rough working from a full one: both are "worked out".
function way_of(text, steps) {
  const lines = text.split(LINE_ENDS).filter((line) => line.includes("=") && !line.includes("\\boxed"));
  if (!lines.length) return "answer only";
  if (lines.filter((line) => /\? (Yes|No)/.test(line)).length * 2 > lines.length) return "checked";
  if (steps === null) return "worked out";
  return 2 * lines.length <= steps + 1 && steps > 1 ? "rough" : "full";
}

// How many of the answers were written in each way: [["answer only", 5], ["full", 3]].
function ways_drawn(ways) {
  const count = (way) => ways.filter((other) => other === way).length;
  return [...WAYS, "worked out"].map((way) => [way, count(way)]).filter(([, drawn]) => drawn);
}
