// SPDX-License-Identifier: Apache-2.0
// One session of the server.
import { call, events, farewell, json } from './api.js';

export const listSessions = async () => (await json('GET', '/v1/sessions')).data;

export class Session {
  constructor(state) {
    this.id = state.id;
    this.state = state;  // as the server said last
    this.eventId = 0;    // of the newest event of a rule that was read
  }
  static create = async (wish, signal) => new Session(await json('POST', '/v1/sessions', wish, signal));
  static restore = async (name) => new Session(await json('POST', '/v1/sessions/restore', { name }));

  #path = (what) => '/v1/sessions/' + encodeURIComponent(this.id) + what;
  #post = (what, body, signal) => json('POST', this.#path(what), body, signal);

  async look() { return this.state = await json('GET', this.#path('')); }
  held = ({ from, to, bins }, signal) => json('GET', this.#path(`/held?from=${from}&to=${to}&bins=${bins}`), null, signal);
  tokens = (from, to, signal) => json('GET', this.#path(`/tokens?from=${from}&to=${to}`), null, signal);
  append = (what, signal) => this.#post('/append', what, signal);
  fork = async () => new Session(await this.#post('/fork', {}));
  save = (name) => this.#post('/save', { name });
  rules = () => json('GET', this.#path('/rules'));
  // As a data URL: it goes with what shows it.
  async eventPicture(id) {
    const blob = await (await call('GET', this.#path(`/events/${id}/picture`))).blob();
    return new Promise((done, failed) => {
      const reader = new FileReader();
      reader.onload = () => done(reader.result);
      reader.onerror = () => failed(reader.error);
      reader.readAsDataURL(blob);
    });
  }
  addRule = (rule) => this.#post('/rules', rule);
  deleteRule = (id) => json('DELETE', this.#path('/rules/' + encodeURIComponent(id)));
  end = () => json('DELETE', this.#path('')).catch(() => {});
  leave() { farewell(this.#path('')); }

  // The events of an answer, as the server streams them.
  async* ask(body, signal) {
    const response = await call('POST', this.#path('/ask'), { ...body, stream: true, reasoning_format: 'none' }, signal);
    for await (const { data } of events(response)) {
      if (data.error) throw new Error(data.error.message);
      yield data;
    }
  }

  // Events of rules that were not read yet, up to the one with the id `newest`. Holds no connection after that: a server
  // has few for readers of events, and a browser has six for all.
  async* newEvents(newest) {
    if (newest <= this.eventId) return;
    const stop = new AbortController();
    try {
      const response = await call('GET', this.#path('/events'), null, stop.signal, { 'Last-Event-ID': String(this.eventId) });
      for await (const event of events(response)) {
        if (event.id) this.eventId = +event.id;
        yield event;
        if (this.eventId >= newest) return;
      }
    } finally {
      stop.abort();
    }
  }
}
