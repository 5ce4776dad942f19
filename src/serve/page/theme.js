// SPDX-License-Identifier: Apache-2.0
// Light or dark: as the system has it, or as the button says. Canvases are drawn again when that changes.

const system = matchMedia('(prefers-color-scheme: dark)');
const order = { auto: 'dark', dark: 'light', light: 'auto' };
const listeners = new Set();
const probe = document.documentElement.appendChild(document.createElement('span'));
probe.hidden = true;
let choice = localStorage.getItem('weir-theme');
let known = new Map();

// A colour of page.css as canvases take it.
export function colour(name) {
  if (!known.has(name)) {
    probe.style.color = 'var(--' + name + ')';
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

export function onTheme(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function apply() {
  if (choice === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  known = new Map();
  for (const listener of listeners) listener();
}

export function themeButton(button) {
  const name = () => { button.textContent = { auto: 'Theme: system', dark: 'Theme: dark', light: 'Theme: light' }[choice]; };
  if (!(choice in order)) choice = 'auto';
  apply();
  name();
  button.addEventListener('click', () => {
    choice = order[choice];
    localStorage.setItem('weir-theme', choice);
    apply();
    name();
  });
  system.addEventListener('change', apply);
}
