// SPDX-License-Identifier: Apache-2.0
// The dialog for a new session's policy and pot, and for how this session's answers are drawn. A session that the server
// refuses changes nothing: the reason stands in the dialog.
import { Session } from './session.js';

const $ = (id) => document.getElementById(id);
const kSampling = ['temperature', 'top_k', 'top_p', 'min_p', 'repeat_penalty', 'seed', 'max_tokens'];
const kRuleTokens = 192;  // what a rule's question may take, as `weir watch` has it

// The server's own choices.
export function defaultWish(props) {
  return { policy: props.policy, pot: props.pot, recall: !!props.recall && props.recall.selector !== 'off', rules: true, system: '' };
}

function bodyOf(wish, props) {
  const body = { policy: wish.policy, pot: wish.pot };
  if (wish.system) body.system = wish.system;
  if (wish.rules) body.rule_tokens = kRuleTokens;
  if (props.recall) body.recall = !wish.recall ? 'off' : props.recall.selector !== 'off' ? props.recall.selector : 'words';
  return body;
}

// A session as wished. Where a model has no room for rules it is made without.
export async function createSession(wish, props, signal) {
  try {
    return await Session.create(bodyOf(wish, props), signal);
  } catch (error) {
    if (!wish.rules || error.status !== 400) throw error;
    try {
      return await Session.create(bodyOf({ ...wish, rules: false }, props), signal);
    } catch { throw error; }
  }
}

export class Settings {
  #pane = null;

  // `beside(session, wish)` opens another pane.
  constructor(props, beside) {
    Object.assign(this, { props, beside, dialog: $('settings'), form: $('settings').querySelector('form') });
    const { policy } = this.form.elements, own = props.policy.split(':')[0];
    for (const one of props.policies) policy.add(new Option(one.name, one.name === own ? props.policy : one.name));
    policy.addEventListener('change', () => this.#summary());
    this.dialog.querySelector('[data-if="recall"]').hidden = !props.recall;
    $('start-beside').addEventListener('click', () => this.#start((session, wish) => this.beside(session, wish)));
    $('start-here').addEventListener('click', () => this.#start((session, wish) => this.#pane.adopt(session, wish)));
    $('end-first').addEventListener('click', () => this.#start((session, wish) => this.#pane.adopt(session, wish), true));
    $('sampling-default').addEventListener('click', () => {
      this.#pane.sampling = {};
      this.#fillSampling();
    });
    this.dialog.addEventListener('close', () => { this.#pane.sampling = this.#sampling(); });
  }

  open(pane) {
    this.#pane = pane;
    const { elements } = this.form;
    for (const name of ['policy', 'pot', 'system']) elements[name].value = pane.wish[name];
    for (const name of ['recall', 'rules']) elements[name].checked = pane.wish[name];
    $('settings-error').textContent = '';
    $('end-first').hidden = true;
    $('start-here').hidden = !pane.session;
    this.#summary();
    this.#fillSampling();
    this.dialog.showModal();
  }

  #summary() {
    const name = this.form.elements.policy.value.split(':')[0];
    $('policy-summary').textContent = this.props.policies.find((one) => one.name === name)?.summary || '';
  }

  #defaults() {
    const { params } = this.props.default_generation_settings;
    return { ...params, max_tokens: params.n_predict };
  }

  #fillSampling() {
    const values = { ...this.#defaults(), ...this.#pane.sampling };
    for (const name of kSampling) this.form.elements[name].value = values[name];
  }

  // What differs from the server's.
  #sampling() {
    const defaults = this.#defaults(), out = {};
    for (const name of kSampling) {
      const { value } = this.form.elements[name];
      if (value !== '' && +value !== defaults[name]) out[name] = +value;
    }
    return out;
  }

  async #start(use, endFirst = false) {
    const { elements } = this.form, buttons = this.dialog.querySelectorAll('button');
    const wish = { policy: elements.policy.value, pot: +elements.pot.value, recall: elements.recall.checked,
      rules: elements.rules.checked, system: elements.system.value.trim() };
    $('settings-error').textContent = '';
    for (const button of buttons) button.disabled = true;
    try {
      if (endFirst) await this.#pane.end();
      use(await createSession(wish, this.props), wish);
      this.dialog.close();
    } catch (error) {
      $('settings-error').textContent = error.message;
      $('end-first').hidden = error.status !== 429 || !this.#pane.session;
    } finally {
      for (const button of buttons) button.disabled = false;
    }
  }
}
