// SPDX-License-Identifier: Apache-2.0
// The page: asks the server what it is, and opens panes, one for each session.
import { json, setKey } from './api.js';
import { make } from './dom.js';
import { Pane } from './pane.js';
import { Settings } from './settings.js';
import { Store } from './store.js';
import { themeButton } from './theme.js';

const $ = (id) => document.getElementById(id);
const panes = [];
let number = 0, current = null;

// The tabs of a narrow screen, which shows one pane at a time.
function showTabs() {
  $('tabs').hidden = panes.length < 2;
  $('tabs').replaceChildren(...panes.map((pane) => {
    const tab = make('button', { type: 'button', 'aria-current': String(pane === current) }, pane.parts.title.textContent);
    tab.addEventListener('click', () => choose(pane));
    return tab;
  }));
  for (const pane of panes) pane.element.classList.toggle('current', pane === current);
}

function choose(pane) {
  current = pane;
  showTabs();
}

async function start() {
  let props;
  try {
    props = await json('GET', '/props');
  } catch (error) {
    const key = error.status === 401;
    $('key-field').hidden = !key;
    $('panes').replaceChildren(make('p', { className: 'error alone', role: 'alert' }, key ? 'This server asks for its key.' : error.message));
    if (key) $('key').focus();
    return;
  }
  $('key-field').hidden = true;
  $('panes').replaceChildren();
  $('model').textContent = props.model.id;
  const open = (begin) => {
    const pane = new Pane(++number, props, page);
    panes.push(pane);
    $('panes').append(pane.element);
    pane.element.addEventListener('focusin', () => { if (current !== pane) choose(pane); });
    choose(pane);
    begin(pane);
    pane.open();
    return pane;
  };
  const beside = (session, more) => open((pane) => pane.attach(session, more));
  const settings = new Settings(props, (session, wish) => open((pane) => pane.adopt(session, wish)));
  const store = new Store(props, beside, (id) => panes.some((pane) => pane.session?.id === id));
  const page = { beside, openSettings: (pane) => settings.open(pane), openStore: (pane) => store.open(pane), renamed: showTabs,
    closed: (pane) => {
      panes.splice(panes.indexOf(pane), 1);
      if (panes.length) choose(current === pane ? panes[0] : current);
      else open(() => {});
    } };
  $('new').disabled = false;
  $('new').addEventListener('click', () => settings.open(current));
  open(() => {});
  current.parts.text.focus();
}

themeButton($('theme'));
$('new').disabled = true;
$('key').addEventListener('change', () => {
  setKey($('key').value);
  start();
});
addEventListener('pagehide', () => {
  for (const pane of panes) if (pane.owned) pane.session?.leave();
});
start();
