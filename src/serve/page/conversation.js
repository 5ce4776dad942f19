// SPDX-License-Identifier: Apache-2.0
// The transcript of a session: what was said, read and brought back.
import { make } from './dom.js';
import { clock } from './format.js';
import { markdown } from './markdown.js';

const kWhy = { held: 'the pot holds the best match', gate: 'no match is good enough',
  too_large: 'what matches is longer than its room', nothing: 'nothing matches', failed: 'the archive cannot be searched' };

export class Conversation {
  constructor(log) { this.log = log; }

  say(kind, ...what) {
    const end = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
    const entry = this.log.appendChild(make('div', { className: kind }, ...what));
    if (end || kind === 'user') this.log.scrollTop = this.log.scrollHeight;
    return entry;
  }
  note = (...what) => this.say('note', ...what);
  error = (text) => this.say('note error', text);
  clear() { this.log.replaceChildren(); }
  copyFrom(other) {
    this.log.replaceChildren(...[...other.log.children].filter((entry) => !entry.matches('.welcome, .suggestions'))
      .map((entry) => entry.cloneNode(true)));
  }

  // Buttons that ask a question each; they go when one is used, or when others come.
  suggest(questions, ask) {
    this.log.querySelector('.suggestions')?.remove();
    const line = this.say('suggestions', ...questions.map((question) => make('button', { type: 'button' }, question)));
    line.addEventListener('click', (event) => {
      if (event.target === line) return;
      line.remove();
      ask(event.target.textContent);
    });
  }

  // An answer that grows. It is drawn at most once a frame.
  answer() {
    const entry = this.say('answer', '…'), words = make('div');
    let text = '', asked = false, time = null;
    const draw = () => {
      asked = false;
      const end = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 80;
      if (text) markdown(text, words);
      else words.textContent = '…';
      if (words.parentNode !== entry) entry.replaceChildren(words);
      if (time) (words.querySelector('p') || words).prepend(time);
      if (end) this.log.scrollTop = this.log.scrollHeight;
    };
    return {
      add: (piece) => {
        text += piece;
        if (!asked) requestAnimationFrame(draw);
        asked = true;
      },
      // The moment of the video that it is about.
      about: (t_ms) => { time = make('time', { dataset: { ms: t_ms } }, '[' + clock(t_ms) + '] '); },
      end: (told) => {
        text ||= '(empty answer)';
        draw();
        if (told.recalled) entry.append(recalledFold(told));
        this.log.scrollTop = this.log.scrollHeight;
      },
      drop: () => { if (text) draw(); else entry.remove(); },
    };
  }
}

// What an answer says of what was brought back for it. Passages are quoted as text.
function recalledFold(told) {
  const n = told.recalled.length, title = told.recall ? 'nothing brought back: ' + kWhy[told.recall] :
    'brought back: ' + n + (n === 1 ? ' passage' : ' passages');
  const fold = make('details', { className: 'recalled', dataset: { why: told.recall || '' } }, make('summary', {}, title));
  for (const passage of told.recalled) {
    fold.append(make('div', {}, 'token ' + passage.seq.toLocaleString('en') + ' of ' + told.seen.toLocaleString('en') +
      (passage.t_ms > 0 ? ', ' + clock(passage.t_ms) : '') + ', match ' + passage.score.toFixed(2)),
      make('blockquote', {}, passage.text));
  }
  fold.addEventListener('toggle', () => fold.scrollIntoView({ block: 'nearest' }));
  return fold;
}
