// SPDX-License-Identifier: Apache-2.0
// The dialog that saves a session to the server's folder, restores one from it, and opens one that the server has.
import { listSessions, Session } from './session.js';

const $ = (id) => document.getElementById(id);
const kNames = 'weir-saved', kMostNames = 50;
const names = () => JSON.parse(localStorage.getItem(kNames) || '[]');

export class Store {
  #pane = null;

  // `beside(session)` opens another pane; `shown(id)`: whether a pane shows that session already.
  constructor(props, beside, shown) {
    Object.assign(this, { beside, shown, dialog: $('store'), form: $('store').querySelector('form') });
    $('snapshots').disabled = !props.snapshots;
    $('no-snapshots').hidden = props.snapshots;
    $('save').addEventListener('click', () => this.#do(async (name) => {
      const saved = await this.#pane.session.save(name);
      localStorage.setItem(kNames, JSON.stringify([...new Set([name, ...names()])].slice(0, kMostNames)));
      return 'Saved as ' + saved.name + '.';
    }));
    $('restore').addEventListener('click', () => this.#do(async (name) => {
      this.beside(await Session.restore(name), { note: 'restored from ' + name, owned: true });
      return 'Restored.';
    }));
    $('open-session').addEventListener('click', () => this.#do(async () => {
      const id = this.form.elements.session.value, state = this.#sessions.find((one) => one.id === id);
      if (!state) return 'There is no other session.';
      this.beside(new Session(state), { note: 'this session was not begun on this page; closing the pane leaves it', owned: false });
      return 'Opened.';
    }));
  }
  #sessions = [];

  open(pane) {
    this.#pane = pane;
    $('store-note').textContent = '';
    $('save').disabled = !pane.session;
    $('saved-names').replaceChildren(...names().map((name) => new Option(name)));
    this.dialog.showModal();
    this.#list().catch((error) => { $('store-note').textContent = error.message; });
  }

  async #list() {
    this.#sessions = (await listSessions()).filter((one) => !this.shown(one.id));
    const { session } = this.form.elements;
    session.replaceChildren(...this.#sessions.map((one) => new Option(one.id + ': ' + one.policy.split(':')[0] + ', ' +
      one.seen.toLocaleString('en') + ' tokens read', one.id)));
    $('open-session').disabled = session.disabled = !this.#sessions.length;
  }

  async #do(what) {
    const note = $('store-note');
    note.className = '';
    note.textContent = '…';
    try {
      note.textContent = await what(this.form.elements.name.value.trim());
      await this.#list();
    } catch (error) {
      note.className = 'error';
      note.textContent = error.message;
    }
  }
}
