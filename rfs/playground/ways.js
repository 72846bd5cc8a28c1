// Which of the four styles an answer has. The rule and the names are those of tiny/ways.py.
"use strict";

const WAYS = ["answer only", "rough", "full", "checked"];
const LINE_ENDS = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/; // those of Python's splitlines

// The number of steps of a problem that somebody typed is not known (null), and without it nobody
// can tell rough steps from full ones: both are "worked out".
function way_of(text, steps) {
  const lines = text.split(LINE_ENDS).filter((line) => line.includes("=") && !line.includes("\\boxed"));
  if (!lines.length) return "answer only";
  if (lines.filter((line) => /\? (Yes|No)/.test(line)).length * 2 > lines.length) return "checked";
  if (steps === null) return "worked out";
  return 2 * lines.length <= steps + 1 && steps > 1 ? "rough" : "full";
}

// How many of the answers have each style: [["answer only", 5], ["full", 3]].
function ways_drawn(ways) {
  const count = (way) => ways.filter((other) => other === way).length;
  return [...WAYS, "worked out"].map((way) => [way, count(way)]).filter(([, drawn]) => drawn);
}
