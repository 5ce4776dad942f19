// SPDX-License-Identifier: Apache-2.0
// The one axis that all charts of a session share, from a token of the stream to another, and a cursor that mouse, finger
// and keyboard move along it. Moving the cursor draws no chart: it is an element above them.
import { countText } from './format.js';

const kLeastTokens = 16;  // zoomed in as far as it goes

export class Timeline {
  // `onRange`: another part of the stream is shown. `onCursor(seq)`: at most once a frame.
  constructor(parts, onRange, onCursor) {
    Object.assign(this, { parts, onRange, onCursor, seen: 0, zoomed: null, cursor: null, asked: false });
    const { scrub } = parts;
    for (const kind of ['pointerdown', 'pointermove']) {
      scrub.addEventListener(kind, (event) => {
        const box = scrub.getBoundingClientRect();
        this.moveTo(this.range.from + (event.clientX - box.left) / box.width * this.#span());
      });
    }
    scrub.addEventListener('dblclick', () => this.zoom(0.25));
    scrub.addEventListener('keydown', (event) => this.#key(event));
    parts['zoom-in'].addEventListener('click', () => this.zoom(0.25));
    parts['zoom-out'].addEventListener('click', () => this.zoom(4));
    parts['zoom-all'].addEventListener('click', () => this.zoom(Infinity));
  }

  get range() { return this.zoomed || { from: 0, to: Math.max(1, this.seen) }; }
  #span() { return this.range.to - this.range.from; }
  // Parts that the map is asked for: as many as pixels.
  get bins() { return Math.max(16, Math.min(1024, Math.round(this.parts.scrub.clientWidth))); }

  grow(seen) {
    this.seen = seen;
    this.parts.scrub.setAttribute('aria-valuemax', Math.max(0, seen - 1));
    this.#show();
  }

  moveTo(seq) {
    if (!this.seen) return;
    this.cursor = Math.round(Math.min(Math.max(seq, 0), this.seen - 1));
    const { from, to } = this.range, span = this.#span();
    if (this.cursor < from || this.cursor >= to) this.#look(this.cursor - span / 2, span);
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.#show();
      if (this.cursor !== null) this.onCursor(this.cursor);
    });
  }

  // Shows `factor` times as much of the stream, around the cursor.
  zoom(factor) {
    if (!this.seen) return;
    const { from, to } = this.range, span = Math.max(Math.min(this.#span() * factor, this.seen), Math.min(kLeastTokens, this.seen));
    const middle = this.cursor ?? (from + to) / 2;
    this.#look(middle - (middle - from) / (to - from) * span, span);
  }

  #look(from, span) {
    const begin = Math.round(Math.max(0, Math.min(from, this.seen - span)));
    this.zoomed = span >= this.seen ? null : { from: begin, to: begin + Math.round(span) };
    this.#show();
    this.onRange();
  }

  // The page may be asked for another cursor text before the words there are known.
  say(text) { this.parts.scrub.setAttribute('aria-valuetext', text); }

  #show() {
    const { scrub, cursor } = this.parts, { from, to } = this.range, all = !this.zoomed;
    cursor.hidden = this.cursor === null || this.cursor < from || this.cursor > to;
    if (!cursor.hidden) {
      cursor.style.transform = `translateX(${(this.cursor - from) / (to - from) * scrub.clientWidth}px)`;
      scrub.setAttribute('aria-valuenow', this.cursor);
    }
    this.parts['zoom-out'].disabled = this.parts['zoom-all'].disabled = all;
    this.parts.range.textContent = all ? '' : 'tokens ' + countText(from) + ' to ' + countText(to);
  }

  #key(event) {
    const step = Math.max(1, Math.round(this.#span() / 200)), at = this.cursor ?? this.range.to - 1;
    const moves = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -20 * step, PageUp: 20 * step };
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key in moves) this.moveTo(at + (event.shiftKey ? Math.sign(moves[event.key]) : moves[event.key]));
    else if (event.key === 'Home') this.moveTo(0);
    else if (event.key === 'End') this.moveTo(this.seen - 1);
    else if (event.key === '+') this.zoom(0.25);
    else if (event.key === '-') this.zoom(4);
    else if (event.key === '0') this.zoom(Infinity);
    else return;
    event.preventDefault();
  }
}
