// SPDX-License-Identifier: Apache-2.0
// What the page remembers of a session over time: figures, scores, events, and what it sent itself. All of it is bounded.

const kSamples = 2000, kScores = 4000, kEvents = 1000, kFrames = 4000, kTextCharacters = 16 << 20;

// Every other one of a list that has become too long: a stream is endless, a chart is not.
function thin(list, most) {
  return list.length > most ? list.filter((_, i) => i % 2 === 0 || i === list.length - 1) : list;
}

// Index of the last entry whose `name` is at most `value`; -1: none.
function lastAt(list, name, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle][name] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

export class History {
  samples = [];        // {seen, bytes, unbounded, t_ms, wall}: the session's figures as the stream grew
  scores = new Map();  // id of a rule -> [{seen, score}]
  events = [];         // of rules, as the server sends them, with `seen`, their place in the stream
  frames = [];         // {t_ms, url}: small pictures of frames that were sent
  texts = [];          // {from, to, text, name}: what was sent, in tokens
  #characters = 0;

  sample(state, wall = performance.now()) {
    const last = this.samples.at(-1);
    if (last && last.seen >= state.seen) return;
    this.samples.push({ seen: state.seen, bytes: state.bytes, unbounded: state.unbounded_bytes, t_ms: state.t_ms, wall });
    this.samples = thin(this.samples, kSamples);
  }

  score(rule, seen) {
    if (rule.score === undefined) return;
    const list = this.scores.get(rule.id) || [];
    if (list.length && list.at(-1).seen >= seen) return;
    list.push({ seen, score: rule.score });
    this.scores.set(rule.id, thin(list, kScores));
  }

  event(event, seen) {
    this.events.push({ ...event, seen: event.evidence?.tokens ? event.evidence.tokens[1] - 1 : seen });
    if (this.events.length > kEvents) this.events.shift();
  }

  frame(t_ms, url) {
    this.frames.push({ t_ms, url });
    this.frames = thin(this.frames, kFrames);
  }

  // Of a moment whose frame the page did not send: another program did, or the page had not been opened.
  picture(t_ms, url) {
    const at = lastAt(this.frames, 't_ms', t_ms);
    if (this.frames[at]?.t_ms === t_ms) return;
    this.frames.splice(at + 1, 0, { t_ms, url });
    this.frames = thin(this.frames, kFrames);
  }

  text(from, to, text, name) {
    this.texts.push({ from, to, text, name });
    this.#characters += text.length;
    while (this.#characters > kTextCharacters) this.#characters -= this.texts.shift().text.length;
  }

  // The figures just before and just behind a place in the stream.
  #around(seq) {
    const i = lastAt(this.samples, 'seen', seq);
    return [this.samples[Math.max(0, i)], this.samples[Math.min(i + 1, this.samples.length - 1)]];
  }

  // How long ago, in seconds, the session had read so far; undefined if that was before the page looked.
  secondsAgo(seq, now = performance.now()) {
    const [before, behind] = this.#around(seq);
    if (!behind || behind.seen <= seq || seq < this.samples[0].seen) return undefined;
    const part = behind.seen > before.seen ? (seq - before.seen) / (behind.seen - before.seen) : 0;
    return (now - before.wall - part * (behind.wall - before.wall)) / 1000;
  }

  // The stream's time at a place, where it moves.
  timeAt(seq) {
    const [before, behind] = this.#around(seq);
    if (!behind || behind.t_ms === before.t_ms) return undefined;
    const part = behind.seen > before.seen ? (seq - before.seen) / (behind.seen - before.seen) : 0;
    return before.t_ms + Math.min(1, Math.max(0, part)) * (behind.t_ms - before.t_ms);
  }

  // The frame shown at a time of the stream.
  frameAt(t_ms) { return this.frames[lastAt(this.frames, 't_ms', t_ms + 0.5)]; }

  // About what the page sent there, where neither pot nor archive says it any more.
  sentAt(seq) {
    const piece = this.texts[lastAt(this.texts, 'from', seq)];
    if (!piece || seq >= piece.to) return undefined;
    const at = Math.floor((seq - piece.from) / (piece.to - piece.from) * piece.text.length);
    return { name: piece.name, text: piece.text.slice(Math.max(0, at - 80), at + 160) };
  }

  // For a fork: both have the same past.
  copy() {
    const other = new History();
    for (const name of ['samples', 'events', 'frames', 'texts']) other[name] = [...this[name]];
    for (const [id, list] of this.scores) other.scores.set(id, [...list]);
    other.#characters = this.#characters;
    return other;
  }
}
