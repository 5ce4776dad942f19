// SPDX-License-Identifier: Apache-2.0
// The rules of a session (“tell me when”): adding and removing them, their scores, their events.
import { make } from './dom.js';
import { clock } from './format.js';
import { colourOfRule } from './score_chart.js';
import { colour } from './theme.js';

export class Rules {
  list = [];

  // `session()`: a promise of the session, made if there is none. `onEvent(seq)`: an event was chosen.
  constructor(parts, history, session, onChange, onEvent) {
    Object.assign(this, { parts, history, session, onChange, onEvent });
    parts['rule-form'].addEventListener('submit', (event) => {
      event.preventDefault();
      this.add(parts.when.value.trim());
    });
  }

  say(text, wrong = false) {
    const note = this.parts['rule-note'];
    note.hidden = !text;
    note.textContent = text;
    note.className = wrong ? 'error' : 'soft';
  }

  async add(when) {
    if (!when) return;
    try {
      const session = await this.session();
      await session.addRule({ when });
      this.parts.when.value = '';
      this.say('Checked after every frame and every text; the first checks only teach it.');
      await this.look(session, session.state.seen);
    } catch (error) {
      this.say(error.message, true);
    }
  }

  // Asks for scores, and for the events that are new.
  async look(session, seen) {
    const told = await session.rules();
    this.list = told.data;
    for (const rule of told.data) this.history.score(rule, seen);
    if (told.trouble) this.say('A check failed: ' + told.trouble, true);
    for await (const event of session.newEvents(told.last_event_id || 0)) {
      if (event.event === 'missed') this.say(event.data.events + ' older events are gone');
      else this.#tell(event.data, seen, session);
    }
    this.draw(session);
    this.onChange();
  }

  #tell(event, seen, session) {
    this.history.event(event, seen);
    const { events } = this.parts, place = this.history.events.at(-1).seen;
    const text = (event.t_ms > 0 ? clock(event.t_ms) + ' ' : '') + event.state + ': ' + event.when + ' (score ' + event.score.toFixed(1) + ')';
    const button = make('button', { type: 'button', title: 'Show this place' }, text);
    button.addEventListener('click', () => this.onEvent(place));
    events.prepend(make('li', { dataset: { state: event.state } }, button));
    if (event.picture) this.#show(event, session, button);
    if (events.children.length > 100) events.lastChild.remove();
    events.hidden = false;
  }

  // The picture of an event, if the server still has it: it keeps those of the newest ones.
  async #show(event, session, button) {
    const { history } = this;
    try {
      const url = await session.eventPicture(event.id);
      history.picture(event.t_ms, url);
      button.prepend(make('img', { src: url, alt: 'what the stream showed' }));
    } catch { /* the event is told without it */ }
  }

  draw(session) {
    const { rules } = this.parts, known = new Map([...rules.children].map((item) => [item.dataset.id, item]));
    this.list.forEach((rule, i) => {
      const item = known.get(rule.id) || this.#item(rule, session);
      known.delete(rule.id);
      if (!item.parentNode) rules.append(item);
      item.firstChild.style.background = colour(colourOfRule(i));
      item.children[2].textContent = rule.state + (rule.score === undefined ? '' : ', ' + rule.score.toFixed(1));
      item.dataset.state = rule.state;
    });
    for (const item of known.values()) item.remove();
  }

  #item(rule, session) {
    const button = make('button', { type: 'button', 'aria-label': 'Stop watching for: ' + rule.when }, 'Remove');
    button.addEventListener('click', async () => {
      try {
        await session.deleteRule(rule.id);
        await this.look(session, session.state.seen);
      } catch (error) {
        this.say(error.message, true);
      }
    });
    return make('li', { dataset: { id: rule.id } }, make('b'), make('span', {}, rule.when), make('span', { className: 'soft' }), button);
  }

  clear() {
    this.list = [];
    this.parts.rules.replaceChildren();
    this.parts.events.replaceChildren();
    this.parts.events.hidden = true;
    this.say('');
  }
}
