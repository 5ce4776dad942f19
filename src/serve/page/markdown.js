// SPDX-License-Identifier: Apache-2.0
// A little Markdown: everything that a model says becomes text nodes, never markup.

function inline(text, into) {
  const pattern = /`([^`\n]+)`|\*\*([^*\n]+)\*\*|\*([^*\n]+)\*/g;
  let at = 0;
  for (const found of text.matchAll(pattern)) {
    into.append(text.slice(at, found.index));
    const element = document.createElement(found[1] ? 'code' : found[2] ? 'strong' : 'em');
    element.textContent = found[1] || found[2] || found[3];
    into.append(element);
    at = found.index + found[0].length;
  }
  into.append(text.slice(at));
}

export function markdown(text, into) {
  into.replaceChildren();
  let block = null, kind = '';
  const open = (tag) => { block = document.createElement(tag); kind = tag; into.append(block); return block; };
  for (const line of text.split('\n')) {
    const item = /^\s*(?:[-*]|(\d+)[.)])\s+(.*)/.exec(line), title = /^#{1,6}\s+(.*)/.exec(line);
    if (line.startsWith('```')) {
      if (kind === 'pre') kind = ''; else open('pre');
    } else if (kind === 'pre') {
      block.append((block.textContent ? '\n' : '') + line);
    } else if (item) {
      const tag = item[1] ? 'ol' : 'ul';
      if (kind !== tag) { open(tag); if (item[1]) block.start = +item[1]; }
      inline(item[2], block.appendChild(document.createElement('li')));
    } else if (title) {
      inline(title[1], open('p').appendChild(document.createElement('strong')));
      kind = '';
    } else if (!line.trim()) {
      kind = '';
    } else if (kind === 'p') {
      block.append(document.createElement('br'));
      inline(line, block);
    } else {
      inline(line, open('p'));
    }
  }
}
