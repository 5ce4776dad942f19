// SPDX-License-Identifier: Apache-2.0
// One session on the page: its conversation, what it watches, and what it holds.
import { Charts } from './charts.js';
import { Conversation } from './conversation.js';
import { partsOf } from './dom.js';
import { bytesText, countText } from './format.js';
import { History } from './history.js';
import { Reading } from './reading.js';
import { Rules } from './rules.js';
import { createSession, defaultWish } from './settings.js';
import { Stage, still } from './stage.js';
import { welcome } from './welcome.js';

const kLookMs = 400, kIdleLookMs = 2500;
const kPieceCharacters = 1 << 13;
const kNarrow = 52;  // rem; below it the memory is under the conversation

export class Pane {
  session = null;
  owned = true;  // ends with the pane
  sampling = {};
  busy = false;
  #stop = null;
  #reading = null;
  #looking = null;
  #lookedAt = 0;

  // `page`: openSettings(pane), openStore(pane), beside(session, more), closed(pane), renamed().
  constructor(number, props, page) {
    Object.assign(this, { number, props, page, wish: defaultWish(props) });
    const template = document.getElementById('pane-template').content.cloneNode(true);
    this.element = template.firstElementChild;
    this.parts = partsOf(template);
    this.element.setAttribute('aria-label', 'Session ' + number);
    this.parts.title.textContent = 'Session ' + number;
    this.parts.memory.setAttribute('aria-label', 'Memory of session ' + number);
    this.conversation = new Conversation(this.parts.log);
    this.history = new History();
    this.charts = new Charts(this.parts, () => this.#lookAtMap());
    this.rules = new Rules(this.parts, this.history, () => this.#begin(), () => this.#draw(), (seq) => this.charts.timeline.moveTo(seq));
    this.stage = new Stage(this.parts, props.vision?.max_side || 512, (...frame) => this.#sendFrame(...frame),
      (error) => this.#failed(error));
    this.#listen();
    this.#timer = setInterval(() => this.#tick(), kLookMs);
    this.#size = new ResizeObserver(() => this.#resized());
    this.#size.observe(this.element);
  }
  #timer;
  #size;

  open() {
    this.#resized();
    if (!this.session) welcome(this);
  }

  // ---- sessions

  async #begin(signal) {
    if (!this.session) this.#use(await createSession(this.wish, this.props, signal));
    return this.session;
  }

  #use(session) {
    this.session = session;
    this.history.sample(session.state);
    const { state } = session;
    this.parts.facts.textContent = state.policy.split(':')[0] + ', pot of ' + countText(state.pot) + ', ' + bytesText(state.bytes) +
      (state.recall ? ', recall' : '');
    this.parts.facts.title = state.policy;
    this.parts.fork.disabled = false;
    this.parts['rule-form'].hidden = !state.rules;
    this.rules.say(state.rules ? '' : 'This session was made without room for rules.');
    this.page.renamed();
  }

  // Shows another session in this pane, from its beginning; the one before it ends.
  adopt(session, wish) {
    this.#stop?.abort();
    this.stage.close();
    this.stage.forget();
    if (this.session && this.owned) this.session.end();
    this.#reset();
    Object.assign(this, { wish: { ...wish }, owned: true });
    this.#use(session);
    this.conversation.note(this.parts.facts.textContent);
    this.look();
  }

  #reset() {
    this.history = new History();
    this.rules.history = this.history;
    this.rules.clear();
    this.charts.clear();
    this.conversation.clear();
    this.parts.counters.replaceChildren();
    this.parts.summary.textContent = '';
  }

  // A session that is there already: a fork, a snapshot, one that another program began.
  attach(session, { note, owned, from }) {
    if (from) {
      this.history = this.rules.history = from.history.copy();
      this.conversation.copyFrom(from.conversation);
      Object.assign(this, { wish: { ...from.wish }, sampling: { ...from.sampling } });
    }
    this.owned = owned;
    this.#use(session);
    if (session.state.rules) this.rules.look(session, session.state.seen).catch(() => {});
    this.conversation.note(note + ': ' + this.parts.facts.textContent + ', ' + countText(session.state.seen) + ' tokens read');
    this.look();
  }

  async end() {
    this.#stop?.abort();
    this.stage.close();
    if (this.session && this.owned) await this.session.end();
    this.session = null;
    this.parts.fork.disabled = true;
  }

  close() {
    clearInterval(this.#timer);
    this.#size.disconnect();
    this.charts.close();
    this.end();
    this.element.remove();
    this.page.closed(this);
  }

  // ---- what the user does

  ask = (question) => this.work(async (signal) => {
    this.conversation.say('user', question);
    const answer = this.conversation.answer(), start = performance.now();
    let first = 0, n = 0, told = {};
    try {
      for await (const event of this.session.ask({ question, ...this.sampling }, signal)) {
        if (event.weir) {
          told = event.weir;
          if (told.modalities.video) answer.about(told.t_ms);
        }
        const piece = event.choices[0]?.delta?.content;
        if (!piece) continue;
        if (!n++) first = performance.now();
        answer.add(piece);
        this.count({ 'time to first token': ((first - start) / 1000).toFixed(2) + ' s' });
        if (n > 1) this.count({ 'pieces a second': ((n - 1) / (performance.now() - first) * 1000).toFixed(1) });
      }
      answer.end(told);
    } catch (error) {
      answer.drop();
      throw error;
    }
  });

  readText = (text, name) => this.work(async (signal) => {
    const note = this.conversation.note('reading ' + countText(text.length) + ' characters of ' + name);
    const reading = this.#reading = new Reading(text, name, this.session.state.seen, Math.min(kPieceCharacters,
      Math.floor(this.props.max_body_bytes / 8)));
    this.#showProgress();
    try {
      await reading.run(async (piece) => {
        const state = await this.session.append({ text: piece }, signal);
        this.#showProgress();
        return state;
      }, (from, to, piece) => this.history.text(from, to, piece, name));
    } finally {
      this.#reading = null;
      this.parts.progress.hidden = true;
      note.textContent = reading.line(false);
    }
  });

  lookAt = (file) => this.work(async (signal) => {
    const picture = await createImageBitmap(file), image = still(picture, picture.width, picture.height, this.props.vision.max_side);
    await this.session.append({ image }, signal);
    const note = this.conversation.note(file.name), shown = document.createElement('img');
    shown.src = image;
    shown.alt = file.name;
    note.append(shown);
  });

  watch = async (name, source) => {
    await this.work(async () => {});  // makes a session if there is none
    if (!this.session) return;
    this.conversation.note('watching ' + name);
    await this.stage.play(name, source);
  };

  watchClip = async () => {
    await this.work(async () => {});
    if (this.session) await this.stage.playClip();
  };

  async takeFile(file) {
    const visual = /^(image|video)\//.exec(file.type);
    if (!visual) await this.readText(await file.text(), file.name);
    else if (!this.props.vision) this.conversation.error('this server was started without a vision encoder (--mmproj)');
    else if (visual[1] === 'image') await this.lookAt(file);
    else await this.watch(file.name, file).catch((error) => this.conversation.error(error.message));
  }

  async #fork() {
    try {
      const session = await this.session.fork();
      this.page.beside(session, { note: 'a fork of session ' + this.number, owned: true, from: this });
    } catch (error) { this.#failed(error); }
  }

  async #sendFrame(frame, t_ms, small) {
    const session = this.session;
    if (!session) return;
    await session.append({ frame, t_ms });
    if (session === this.session) this.history.frame(t_ms, small);
  }

  // Runs one task, which Stop can end.
  async work(task) {
    if (this.busy) return;
    const stop = this.#stop = new AbortController();
    this.#busy(true);
    this.parts.log.querySelector('.welcome')?.remove();
    try {
      await this.#begin(stop.signal);
      await task(stop.signal);
    } catch (error) {
      this.#failed(error);
    } finally {
      this.#busy(false);
      await this.#looking;  // it began before the end
      await this.look();
    }
  }

  #busy(on) {
    this.busy = on;
    const { parts } = this, focused = this.element.contains(document.activeElement) || document.activeElement === document.body;
    for (const name of ['send', 'read', 'attach', 'fork']) parts[name].disabled = on;
    parts.fork.disabled = on || !this.session;
    parts.stop.disabled = !on;
    if (on) return;
    this.#stop = null;
    if (focused && document.activeElement === document.body) parts.text.focus();
  }

  #failed(error) {
    if (error.name === 'AbortError') this.conversation.note('stopped');
    else this.conversation.error(error.message);
    if (error.status !== 404 || !this.session) return;
    this.conversation.note('The session has ended. The next message begins another.');
    this.session = null;
    this.parts.fork.disabled = true;
    this.history = this.rules.history = new History();
  }

  // ---- what the session holds

  #tick() {
    if (!this.session) return;
    const active = this.busy || this.stage.open || !this.owned && document.visibilityState === 'visible';
    if (active && performance.now() - this.#lookedAt > (this.busy || this.stage.open ? 0 : kIdleLookMs)) this.look();
  }

  // Asks the server for the session's figures; one question at a time.
  look() { return this.#looking ||= this.#look().finally(() => { this.#looking = null; }); }

  async #look() {
    const { session } = this;
    if (!session) return;
    try {
      const state = await session.look();
      this.#lookedAt = performance.now();
      if (session !== this.session) return;
      this.history.sample(state);
      this.#reading?.grow(state.seen);
      this.#showProgress();
      this.#count(state);
      this.charts.timeline.grow(state.seen);
      await this.#lookAtMap();
      if (state.rules?.count || this.rules.list.length) await this.rules.look(session, state.seen);
    } catch (error) {
      if (session === this.session && error.status === 404) this.#failed(error);
      else console.warn(error.message);
    }
  }

  async #lookAtMap() {
    const { session } = this;
    if (!session || !this.charts.shown) return;
    const { range, bins } = this.charts.timeline, held = await session.held({ ...range, bins });
    if (session !== this.session) return;
    this.charts.held = held;
    this.#draw();
  }

  #draw() {
    this.charts.draw({ session: this.session, history: this.history, rules: this.rules.list });
  }

  #showProgress() {
    const { progress, bar, far } = this.parts;
    progress.hidden = !this.#reading;
    if (!this.#reading) return;
    bar.value = this.#reading.part;
    far.textContent = this.#reading.line(true);
  }

  count(entries) { this.charts.count(entries); }
  #count(state) { this.charts.countState(state, (note) => this.conversation.note(note)); }

  // ---- the pane itself

  #resized() {
    const narrow = this.element.clientWidth < kNarrow * parseFloat(getComputedStyle(document.documentElement).fontSize);
    if (this.element.classList.contains('narrow') !== narrow || this.#first) {
      this.element.classList.toggle('narrow', narrow);
      this.#showMemory(!narrow || innerWidth > 640);
      this.#first = false;
    }
    this.#draw();
  }
  #first = true;

  #showMemory(on) {
    this.parts.memory.hidden = !on;
    this.parts['show-memory'].setAttribute('aria-expanded', String(on));
    if (on) this.look();
  }

  #take() {
    const text = this.parts.text.value.trim();
    if (!text || this.busy) return '';
    this.parts.text.value = '';
    return text;
  }

  #listen() {
    const { parts, props } = this, on = (name, kind, act) => parts[name].addEventListener(kind, act);
    on('form', 'submit', (event) => {
      event.preventDefault();
      const text = this.#take();
      if (text) this.ask(text);
    });
    on('read', 'click', () => {
      const text = this.#take();
      if (text) this.readText(text, 'the message');
    });
    on('text', 'keydown', (event) => {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      (event.ctrlKey || event.metaKey ? parts.read : parts.send).click();
    });
    on('stop', 'click', () => this.#stop?.abort());
    this.element.addEventListener('keydown', (event) => { if (event.key === 'Escape') this.#stop?.abort(); });
    on('attach', 'click', () => parts.file.click());
    on('file', 'change', () => {
      const file = parts.file.files[0];
      parts.file.value = '';
      if (file) this.takeFile(file);
    });
    on('settings', 'click', () => this.page.openSettings(this));
    on('store', 'click', () => this.page.openStore(this));
    on('fork', 'click', () => this.#fork());
    on('close', 'click', () => this.close());
    on('show-memory', 'click', () => this.#showMemory(parts.memory.hidden));
    this.#listenForVision();
    const talk = parts.form.parentNode;
    talk.addEventListener('dragover', (event) => { event.preventDefault(); talk.classList.add('dropping'); });
    talk.addEventListener('dragleave', () => talk.classList.remove('dropping'));
    talk.addEventListener('drop', async (event) => {
      event.preventDefault();
      talk.classList.remove('dropping');
      for (const file of [...event.dataTransfer.files]) await this.takeFile(file);
    });
    parts.fps.value = props.vision ? 1 : '';
  }

  #listenForVision() {
    const { parts, props } = this;
    if (!props.vision) return;
    parts.camera.hidden = !navigator.mediaDevices;  // browsers have it on this machine and over TLS
    parts.file.accept = 'text/*,.md,.txt,image/*,video/*';
    parts.attach.title = 'Read a text, look at a picture, watch a video (or drop it here)';
    parts.camera.addEventListener('click', async () => {
      try {
        await this.watch('the camera', await navigator.mediaDevices.getUserMedia({ video: true }));
      } catch (error) {
        this.conversation.error('no camera: ' + error.message);
      }
    });
  }
}
