// SPDX-License-Identifier: Apache-2.0
// Elements, and nothing else: texts become text nodes, never markup.

// make('p', { className: 'soft' }, 'words', element): an element with its properties and what is in it.
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === 'dataset') Object.assign(element.dataset, value);
    else if (name.startsWith('aria-') || name === 'role') element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

// The elements below `root` that carry a data-part, by its name.
export function partsOf(root) {
  const parts = {};
  for (const element of root.querySelectorAll('[data-part]')) parts[element.dataset.part] = element;
  return parts;
}
