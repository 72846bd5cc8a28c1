// Text to token ids and back: Qwen3's byte-level BPE, from the same tokenizer.json.
"use strict";

// Where a text may be cut into words. \s in Python and Rust is White_Space; \s of JavaScript is a
// little different.
const SPACE = "\\p{White_Space}";
const WORDS = new RegExp(
  "'(?:[sSſ]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])" +
  "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+" +
  "|\\p{N}" +
  `| ?[^${SPACE}\\p{L}\\p{N}]+[\\r\\n]*` +
  `|${SPACE}*[\\r\\n]+` +
  `|${SPACE}+(?!\\P{White_Space})` +
  `|${SPACE}+`, "gu");

// The 256 bytes as printable characters: those that are printable already stay as they are.
function byte_characters() {
  const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
}

class Qwen3Tokenizer {
  // file: the contents of tokenizer.json
  constructor(file) {
    this.characters = byte_characters();
    this.bytes = new Map(this.characters.map((character, b) => [character, b]));
    this.ids = new Map(Object.entries(file.model.vocab));
    this.ranks = new Map(file.model.merges.map(([a, b], rank) => [a + " " + b, rank]));
    this.added = new Map(file.added_tokens.map(({ content, id }) => [content, id]));
    this.tokens = new Map([...this.ids, ...this.added].map(([token, id]) => [id, token]));
    const longest_first = [...this.added.keys()].sort((a, b) => b.length - a.length);
    const quoted = longest_first.map((token) => token.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&"));
    this.specials = new RegExp("(" + quoted.join("|") + ")", "u");
  }

  encode(text) {
    const ids = [];
    for (const part of text.split(this.specials)) {
      if (this.added.has(part)) ids.push(this.added.get(part));
      else for (const word of part.normalize("NFC").match(WORDS) || []) ids.push(...this.merge(word));
    }
    return ids;
  }

  // Byte pair encoding: of all neighbours, the pair that was learned first becomes one token.
  merge(word) {
    const parts = Array.from(new TextEncoder().encode(word), (b) => this.characters[b]);
    while (parts.length > 1) {
      let best = -1, lowest = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(parts[i] + " " + parts[i + 1]) ?? Infinity;
        if (rank < lowest) [best, lowest] = [i, rank];
      }
      if (best < 0) break;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
    }
    return parts.map((part) => this.ids.get(part));
  }

  // Special tokens are kept. Bytes that are no character yet are shown as U+FFFD.
  decode(ids) {
    let text = "", bytes = [];
    const flush = () => {
      text += new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
      bytes = [];
    };
    for (const id of ids) {
      const token = this.tokens.get(id) ?? "";
      if (this.added.has(token)) {
        flush();
        text += token;
      } else for (const character of token) bytes.push(this.bytes.get(character));
    }
    flush();
    return text;
  }
}
