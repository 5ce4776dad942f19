// SPDX-License-Identifier: Apache-2.0
// The memory side of a session: charts over one time line, the lens under its cursor, and counters.
import { make } from './dom.js';
import { bytesText, clock, countText } from './format.js';
import { Lens } from './lens.js';
import { drawMap, drawStates } from './map.js';
import { drawMemory } from './memory_chart.js';
import { drawScores } from './score_chart.js';
import { onTheme } from './theme.js';
import { Timeline } from './timeline.js';

export class Charts {
  held = null;  // the map as the server sent it last
  #drawn = null;
  #asked = false;
  #reads = [];  // [time, frames read] of the last ten seconds
  #note = '';

  // `onRange`: the map of another part of the stream is needed.
  constructor(parts, onRange) {
    this.parts = parts;
    this.timeline = new Timeline(parts, () => { this.#redraw(); onRange(); }, (seq) => this.#look(seq));
    this.lens = new Lens(parts.lens, (text) => this.timeline.say(text));
    this.close = onTheme(() => this.#redraw());
  }

  get shown() { return !this.parts.memory.hidden; }

  // `what`: {session, history, rules}. At most once a frame, and not where nobody sees it.
  draw(what) {
    this.#drawn = what;
    this.#redraw();
  }

  #redraw() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      if (!this.#drawn || !this.shown) return;
      const { parts, timeline: { range } } = this, { history, rules } = this.#drawn;
      const last = history.samples.at(-1);
      if (last) {
        parts.mine.textContent = 'this session: ' + bytesText(last.bytes);
        parts.theirs.textContent = 'unbounded cache: ' + bytesText(last.unbounded);
      }
      drawMemory(parts['memory-chart'], history.samples, range);
      parts['score-track'].hidden = !rules.length;
      if (rules.length) drawScores(parts['score-chart'], rules, history, range);
      drawMap(parts.map, this.held, range);
      drawStates(parts.states, this.held, range);
    });
  }

  #look(seq) {
    const { session, history } = this.#drawn || {};
    if (history) this.lens.show(seq, { session, history, held: this.held, seen: this.timeline.seen });
  }

  clear() {
    this.held = null;
    this.#reads = [];
    this.#note = '';
    this.lens.clear();
    Object.assign(this.timeline, { cursor: null, zoomed: null });
    this.timeline.grow(0);
    this.#redraw();
  }

  // ---- counters

  count(entries) {
    const { counters } = this.parts;
    for (const [name, value] of Object.entries(entries)) {
      let dd = counters.querySelector('dd[data-name="' + name + '"]');
      if (!dd) {
        dd = make('dd', { dataset: { name } });
        counters.append(make('dt', {}, name), dd);
      }
      if (dd.textContent !== String(value)) dd.textContent = value;
    }
  }

  // Of a session as the server describes it; `say` is told what its archive has lost.
  countState(state, say) {
    const { states, recall, frames } = state, video = state.modalities?.video;
    this.parts.summary.textContent = countText(state.seen) + ' tokens read: ' + countText(states.held) + ' held, ' +
      (recall ? countText(states.on_disk) + ' on disk, ' : '') + countText(states.gone) + ' gone; ' + bytesText(state.bytes) + ' of memory';
    this.count({ 'tokens seen': state.seen, 'tokens held': state.kept, 'tokens forgotten': state.dropped, 'selections': state.selections });
    if (recall) {
      this.count({ 'tokens on disk': states.on_disk, 'tokens gone': states.gone,
        'archive': bytesText(recall.bytes || 0) + ' of ' + bytesText(recall.disk) });
      if (recall.note && recall.note !== this.#note) say('recall: ' + recall.note);
      this.#note = recall.note;
    }
    if (frames?.arrived) this.#countFrames(frames);
    if (video) this.count({ 'video held': video.from_ms === undefined ? 'nothing' : clock(video.from_ms) + ' to ' + clock(video.to_ms) });
  }

  #countFrames(frames) {
    const now = performance.now(), reads = this.#reads;
    reads.push([now, frames.read]);
    while (reads.length > 2 && now - reads[0][0] > 10000) reads.shift();
    const [then, before] = reads[0];
    this.count({ 'frames looked at': frames.read, 'frames dropped': frames.dropped, 'frames waiting': frames.waiting });
    if (now > then) this.count({ 'frames a second': ((frames.read - before) / (now - then) * 1000).toFixed(2) });
  }
}
