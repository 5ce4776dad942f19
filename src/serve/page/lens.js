// SPDX-License-Identifier: Apache-2.0
// What lies under the cursor: the words or the frame, their age, and whether they are held, on disk or gone.
import { make } from './dom.js';
import { clock, countText, durationText } from './format.js';

const kRest = 150;  // milliseconds that the cursor rests before the server is asked
const kBefore = 48, kBehind = 48;
const kStates = { held: 'held', on_disk: 'only on disk', gone: 'gone' };

export class Lens {
  #timer = 0;
  #stop = null;

  // `say` takes a line for the cursor, for those who do not see it.
  constructor(element, say) {
    this.element = element;
    this.say = say;
  }

  clear() {
    clearTimeout(this.#timer);
    this.#stop?.abort();
    this.element.hidden = true;
  }

  // Shows at once what the page knows, and what the server knows when the cursor rests.
  show(seq, { session, history, held, seen }) {
    this.element.hidden = false;
    const head = this.#head(seq, history, seen), part = this.#part(seq, held);
    this.element.replaceChildren(make('p', {}, head), make('p', { className: 'soft' }, part));
    this.say(head + '; ' + part);
    const frame = this.#frame(history, history.timeAt(seq));
    if (frame) this.element.append(frame);
    clearTimeout(this.#timer);
    this.#stop?.abort();
    if (session) this.#timer = setTimeout(() => this.#ask(seq, session, history), kRest);
  }

  // `time` of the stream: exact where the server has said it.
  #head(seq, history, seen, time = history.timeAt(seq)) {
    const ago = history.secondsAgo(seq);
    return 'Token ' + countText(seq) + ' of ' + countText(seen) + ', ' + countText(seen - 1 - seq) + ' tokens ago' +
      (ago === undefined ? '' : ' (' + durationText(ago) + ')') + (!time ? '' : ', at ' + clock(time));
  }

  // Of the part of the map that the cursor is in.
  #part(seq, held) {
    const bin = held ? Math.floor((seq - held.from) / held.tokens_per_bin) : -1;
    if (!held || bin < 0 || bin >= held.bins) return '';
    const counts = Object.keys(kStates).filter((name) => held.states[name][bin] > 0)
      .map((name) => countText(held.states[name][bin]) + ' ' + kStates[name]);
    return 'around it: ' + (counts.join(', ') || 'nothing of the stream itself');
  }

  #frame(history, t_ms) {
    const frame = t_ms === undefined ? undefined : history.frameAt(t_ms);
    return frame && make('img', { src: frame.url, alt: 'the frame at ' + clock(frame.t_ms) });
  }

  async #ask(seq, session, history) {
    const stop = this.#stop = new AbortController();
    try {
      const told = await session.tokens(Math.max(0, seq - kBefore), seq + kBehind, stop.signal);
      if (!stop.signal.aborted) this.#tell(seq, told, history);
    } catch (error) {
      if (error.name !== 'AbortError') this.element.append(make('p', { className: 'error' }, error.message));
    }
  }

  #tell(seq, told, history) {
    const run = told.runs.find((one) => one.from <= seq && seq < one.to);
    const passage = told.passages.find((one) => one.from <= seq && seq < one.to);
    const state = !run ? 'taken back after an answer' : run.state !== 'held' ? kStates[run.state] : (run.pinned ? 'pinned, ' : '') +
      'held by ' + (told.layers === 1 ? 'all layers' : run.layers + ' of ' + told.layers + ' layers');
    const time = run?.t_ms ?? passage?.t_ms ?? history.timeAt(seq), head = this.#head(seq, history, told.seen, time);
    const parts = [make('p', {}, head), make('p', { dataset: { state: run?.state || '' } }, make('strong', {}, state))];
    const modality = run?.modality || passage?.modality;
    const sent = run?.state === 'gone' && !passage && history.sentAt(seq);
    if (modality ? modality !== 'text' : !sent && time !== undefined) {
      parts.push(this.#frame(history, time) || make('p', { className: 'soft' }, 'a picture, at ' + clock(time)));
    }
    if (passage) parts.push(make('p', { className: 'words' }, ...told.passages.map((one) => this.#quoted(one, one === passage, run))));
    if (sent) parts.push(make('p', { className: 'words gone' }, 'This page sent about here, of ' + sent.name + ': … ' + sent.text + ' …'));
    if (!passage) {
      const words = make('p', { className: 'words' });
      for (const one of told.runs) {
        if (one.text) words.append(this.#marked(one, seq));
        else words.append(make('span', { className: 'gone' }, one.state === 'held' ? ' [picture] ' : ' … '));
      }
      if (told.runs.some((one) => one.text)) parts.push(words);
    }
    this.element.replaceChildren(...parts);
    this.say(head + '; ' + state + (passage?.text ? ': ' + passage.text : run?.text ? ': ' + run.text : ''));
  }

  // A passage of the archive; the one with the cursor is marked.
  #quoted(passage, inside, run) {
    if (passage.text === undefined) return make('span', { className: 'gone' }, ' [picture] ');
    return make('span', {}, inside ? make('mark', { className: run?.state || '' }, passage.text) : passage.text);
  }

  // A held run; the one with the cursor is marked.
  #marked(run, seq) {
    const inside = run.from <= seq && seq < run.to;
    return make('span', { className: 'held' }, inside ? make('mark', {}, run.text) : run.text);
  }
}
