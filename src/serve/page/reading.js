// SPDX-License-Identifier: Apache-2.0
// Reads a text of any length: in pieces that fit a request, with what was read so far said several times a second.
import { countText, durationText } from './format.js';

// Where the piece of `text` ends that begins at `at`: at a line's end, else before a space, never inside a character.
export function pieceEnd(text, at, most) {
  const end = at + most;
  if (end >= text.length) return text.length;
  const piece = text.slice(at, end), line = piece.lastIndexOf('\n') + 1, space = piece.lastIndexOf(' ');
  return line > 0 ? at + line : space > 0 ? at + space : end - (/[\uD800-\uDBFF]$/.test(piece) ? 1 : 0);
}

export class Reading {
  // `seen`: tokens of the session before it; `pieceCharacters`: of a request at most.
  constructor(text, name, seen, pieceCharacters) {
    Object.assign(this, { text, name, most: pieceCharacters, at: 0, to: 0, begin: seen, piece: seen, seen, start: performance.now() });
  }

  // The server has read so many tokens of the session.
  grow(seen) { this.seen = Math.max(this.seen, seen); }

  // Characters read, of the present piece as many as its tokens make likely.
  get characters() {
    const perToken = this.at && this.piece > this.begin ? this.at / (this.piece - this.begin) : 3;
    return Math.min(this.at + (this.seen - this.piece) * perToken, this.to || this.at);
  }
  get part() { return this.text.length ? this.characters / this.text.length : 1; }

  // `left`: with the time that is left, while it goes on.
  line(left) {
    const seconds = (performance.now() - this.start) / 1000, part = this.part, tokens = this.seen - this.begin;
    const rate = tokens / Math.max(seconds, 0.001);
    return 'read ' + countText(this.characters) + ' of ' + countText(this.text.length) + ' characters of ' + this.name +
      (tokens > 0 && left ? ', ' + countText(rate) + ' tokens a second' : '') +
      (left && part > 0.01 ? ', about ' + durationText(seconds / part - seconds) + ' left' : '');
  }

  // `append(text)` resolves to the session's state; `keep(from, to, text)` is told what each piece became.
  async run(append, keep) {
    while (this.at < this.text.length) {
      this.to = pieceEnd(this.text, this.at, this.most);
      const piece = this.text.slice(this.at, this.to), state = await append(piece);
      keep(this.piece, state.seen, piece);
      this.at = this.to;
      this.piece = this.seen = state.seen;
    }
  }
}
