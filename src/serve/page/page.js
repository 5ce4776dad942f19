'use strict';
const $ = (id) => document.getElementById(id);
// `pieceBytes`: a long text is read in pieces this small, so that the page says every few seconds how far it is.
const state = { id: null, seen: [], looked: null, stop: null, busy: false, pieceBytes: 1 << 14, vision: null, recall: null, note: '',
  sampling: '' };

// ---- the server

async function call(method, path, body, signal) {
  const headers = { 'Content-Type': 'application/json' };
  const key = $('key').value || sessionStorage.getItem('weir-key');
  if (key) headers.Authorization = 'Bearer ' + key;
  const response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body) });
  if (response.ok) {
    if (key) sessionStorage.setItem('weir-key', key);
    return response;
  }
  if (response.status === 401) $('key-field').hidden = false;
  let message = 'status ' + response.status;
  try { message = (await response.json()).error.message; } catch { /* not a JSON error from the server */ }
  throw new Error(message);
}
const json = async (...args) => (await call(...args)).json();
const ofSession = (what) => '/v1/sessions/' + state.id + what;

// Yields the parsed objects of a stream of server-sent events.
async function* events(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  for (let text = '';;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      if (text.startsWith(':')) continue;  // a comment: the model is still reading
      const data = text.slice(0, end).replace(/^data: /, '');
      if (data === '[DONE]') return;
      yield JSON.parse(data);
    }
  }
}

// ---- text: everything a model says becomes text nodes, never markup

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

function markdown(text, into) {
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

function say(kind, text) {
  const log = $('log'), div = log.appendChild(document.createElement('div'));
  div.className = kind;
  div.textContent = text;
  log.scrollTop = log.scrollHeight;
  return div;
}

// ---- memory

const bytesText = (n) => {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; ++i) n /= 1024;
  return n.toFixed(i ? 1 : 0) + ' ' + units[i];
};
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

function canvasOf(id) {
  const canvas = $(id);
  canvas.width = canvas.clientWidth * 2;
  return [canvas.getContext('2d'), canvas.width, canvas.height];
}

function drawMemory() {
  const [g, width, height] = canvasOf('memory');
  const last = state.seen.at(-1);
  if (!last) return;
  const most = Math.max(last.bytes, last.unbounded) * 1.1, x = (p) => p.seen / Math.max(1, last.seen) * (width - 8) + 4;
  for (const [key, name] of [['unbounded', '--alarm'], ['bytes', '--held']]) {
    g.strokeStyle = colour(name);
    g.lineWidth = 4;
    g.beginPath();
    for (const point of state.seen) g.lineTo(x(point), height - 6 - point[key] / most * (height - 12));
    g.stroke();
  }
  $('mine').textContent = 'this session: ' + bytesText(last.bytes);
  $('theirs').textContent = 'an unbounded cache: ' + bytesText(last.unbounded);
}

function drawMap(held) {
  const [g, width, height] = canvasOf('map');
  const names = { text: '--held', image: '--image', video: '--video' };
  const rows = held.layers, row = height / rows, column = width / held.bins, full = Math.max(1, held.tokens_per_bin);
  for (const [modality, counts] of Object.entries(held.held)) {
    g.fillStyle = colour(names[modality] || '--held');
    counts.forEach((bins, layer) => bins.forEach((n, bin) => {
      if (!n) return;
      g.globalAlpha = Math.min(1, 0.15 + 0.85 * n / full);
      g.fillRect(bin * column, layer * row, Math.ceil(column), Math.max(1, row - 1));
    }));
  }
  g.globalAlpha = 1;
  $('map').dataset.dropped = held.dropped;
}

// One strip below the map: of each part of the stream what is held, what only the archive has, and what is gone.
function drawStates({ states, bins }) {
  const [g, width, height] = canvasOf('states');
  const names = { held: '--held', on_disk: '--disk', gone: '--gone' }, column = width / bins;
  for (let bin = 0; bin < bins; ++bin) {
    const all = Object.keys(names).reduce((sum, name) => sum + states[name][bin], 0);
    let top = 0;
    for (const name of Object.keys(names)) {
      const part = all ? states[name][bin] / all * height : 0;
      g.fillStyle = colour(names[name]);
      g.fillRect(bin * column, top, Math.ceil(column), part);
      top += part;
    }
  }
}

// What an answer says of what was brought back for it. Passages are quoted as text.
function showRecalled(told, into) {
  if (!told.recalled) return;
  const fold = into.appendChild(document.createElement('details'));
  const title = fold.appendChild(document.createElement('summary'));
  const why = { held: 'nothing brought back: the pot holds the best match', gate: 'nothing brought back: no match is good enough',
    too_large: 'nothing brought back: what matches is longer than its room', nothing: 'nothing brought back: nothing matches',
    failed: 'nothing brought back: the archive cannot be searched' };
  fold.className = 'recalled';
  fold.dataset.why = told.recall || '';
  title.textContent = told.recall ? why[told.recall] : 'brought back: ' + told.recalled.length +
    (told.recalled.length === 1 ? ' passage' : ' passages');
  for (const passage of told.recalled) {
    const at = fold.appendChild(document.createElement('div'));
    at.textContent = 'token ' + passage.seq.toLocaleString() + ' of ' + told.seen.toLocaleString() +
      (passage.t_ms > 0 ? ', ' + clock(passage.t_ms) : '') + ', match ' + passage.score.toFixed(2);
    fold.appendChild(document.createElement('blockquote')).textContent = passage.text;
  }
  fold.addEventListener('toggle', () => fold.scrollIntoView({ block: 'nearest' }));
  $('log').scrollTop = $('log').scrollHeight;
}

function count(entries) {
  for (const [name, value] of Object.entries(entries)) {
    let dd = document.querySelector('dd[data-name="' + name + '"]');
    if (!dd) {
      $('counters').appendChild(document.createElement('dt')).textContent = name;
      dd = $('counters').appendChild(document.createElement('dd'));
      dd.dataset.name = name;
    }
    dd.textContent = value;
  }
}

async function lookOnce() {
  const id = state.id;
  if (!id) return;
  try {
    const [session, held] = await Promise.all([json('GET', ofSession('')), json('GET', ofSession('/held'))]);
    if (id !== state.id) return;
    const before = state.seen.at(-1);
    if (!before || before.seen !== session.seen) {
      state.seen.push({ seen: session.seen, bytes: session.bytes, unbounded: session.unbounded_bytes });
      // A stream is endless but the chart is not: keep every other point.
      if (state.seen.length > 1000) state.seen = state.seen.filter((_, i) => i % 2 === 0);
    }
    drawMemory();
    drawMap(held);
    drawStates(held);
    count({ 'tokens seen': session.seen, 'tokens held': session.kept, 'tokens forgotten': session.dropped,
      'selections': session.selections });
    if (session.recall) {
      count({ 'tokens on disk': session.states.on_disk, 'tokens gone': session.states.gone,
        'archive': bytesText(session.recall.bytes || 0) + ' of ' + bytesText(session.recall.disk) });
      if (session.recall.note && session.recall.note !== state.note) say('note', 'recall: ' + session.recall.note);
      state.note = session.recall.note;
    }
    countSeen(session);
  } catch (error) { console.warn(error.message); }
}

function look() {
  const done = lookOnce();
  state.looked = Promise.all([state.looked, done]).then(() => {});
  return done;
}

// ---- user actions

function busy(on) {
  state.busy = on;
  for (const id of ['send', 'read', 'attach', 'new', 'policy', 'pot', 'recall']) $(id).disabled = on;
  $('stop').disabled = !on;
  if (!on) state.stop = null;
}

// Runs one task, which the Stop button can cancel.
async function work(task) {
  if (state.busy) return;
  state.stop = new AbortController();
  busy(true);
  const watch = setInterval(look, 700);
  try {
    if (!state.id) await begin();
    await task(state.stop.signal);
  } catch (error) {
    say('note' + (error.name === 'AbortError' ? '' : ' error'), error.name === 'AbortError' ? 'stopped' : error.message);
  } finally {
    clearInterval(watch);
    busy(false);
    await look();
    $('text').focus();
  }
}

async function begin() {
  const body = { policy: $('policy').value };
  if ($('pot').value) body.pot = +$('pot').value;
  const { recall } = state;
  if (recall) body.recall = !$('recall').checked ? 'off' : recall.selector !== 'off' ? recall.selector : 'words';
  const session = await json('POST', '/v1/sessions', body);
  state.id = session.id;
  state.seen = [{ seen: session.seen, bytes: session.bytes, unbounded: session.unbounded_bytes }];
  say('note', session.policy + ', a pot of ' + session.pot + ' tokens, ' + bytesText(session.bytes) +
    (session.recall ? ', recall ' + session.recall.selector.split(':')[0] : '') + '; ' + state.sampling);
}

const ask = (question) => work(async (signal) => {
  say('user', question);
  const answer = say('answer', '…'), start = performance.now();
  let text = '', first = 0, n = 0, at = null, told = {};
  const response = await call('POST', ofSession('/ask'), { question, stream: true, reasoning_format: 'none' }, signal);
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message);
    const piece = event.choices[0]?.delta?.content;
    if (event.weir) {
      told = event.weir;
      count({ 'tokens seen': event.weir.seen });
      if (event.weir.modalities.video) at = stamp(event.weir.t_ms);
      if (at) answer.prepend(at);
    }
    if (!piece) continue;
    if (!n++) first = performance.now();
    text += piece;
    markdown(text, answer);
    $('log').scrollTop = $('log').scrollHeight;
    count({ 'time to first token': ((first - start) / 1000).toFixed(2) + ' s' });
    if (n > 1) count({ 'pieces a second': ((n - 1) / (performance.now() - first) * 1000).toFixed(1) });
  }
  if (!text) answer.lastChild.textContent = '(empty answer)';
  showRecalled(told, answer);
});

// Where the piece of `text` ends that begins at `at`: at a line's end, else before a space, never inside a character.
function pieceEnd(text, at) {
  const end = at + state.pieceBytes;
  if (end >= text.length) return text.length;
  const piece = text.slice(at, end), line = piece.lastIndexOf('\n') + 1, space = piece.lastIndexOf(' ');
  return line > 0 ? at + line : space > 0 ? at + space : end - (/[\uD800-\uDBFF]$/.test(piece) ? 1 : 0);
}

const timeText = (seconds) => seconds < 90 ? Math.ceil(seconds) + ' s' : Math.round(seconds / 60) + ' min';

// Reads a text of any length in pieces that fit a request.
const readText = (text, name) => work(async (signal) => {
  const note = say('note', 'reading ' + text.length.toLocaleString() + ' characters of ' + name + ' …'), start = performance.now();
  let at = 0;
  const far = () => 'read ' + at.toLocaleString() + ' of ' + text.length.toLocaleString() + ' characters of ' + name;
  try {
    while (at < text.length) {
      const end = pieceEnd(text, at);
      await call('POST', ofSession('/append'), { text: text.slice(at, end) }, signal);
      at = end;
      const left = (performance.now() - start) / 1000 / at * (text.length - at);
      note.textContent = far() + ', about ' + timeText(left) + ' left';
    }
  } finally {
    note.textContent = far();
  }
});

async function forget() {
  const id = state.id;
  state.id = null;
  state.seen = [];
  forgetFrames();
  $('log').replaceChildren();
  $('counters').replaceChildren();
  state.note = '';
  await state.looked;  // what was asked of this session is answered while there is one
  if (id) await call('DELETE', '/v1/sessions/' + id).catch(() => {});
  await work(async () => {});
}

function take() {
  const text = $('text').value.trim();
  if (text && !state.busy) $('text').value = '';
  return state.busy ? '' : text;
}

$('form').addEventListener('submit', (event) => { event.preventDefault(); const text = take(); if (text) ask(text); });
$('read').addEventListener('click', () => { const text = take(); if (text) readText(text, 'the message'); });
$('stop').addEventListener('click', () => state.stop?.abort());
$('new').addEventListener('click', forget);
$('policy').addEventListener('change', forget);
$('pot').addEventListener('change', forget);
$('recall').addEventListener('change', forget);
$('attach').addEventListener('click', () => $('file').click());
$('file').addEventListener('change', async () => {
  const file = $('file').files[0];
  $('file').value = '';
  if (file) takeFile(file);
});
$('text').addEventListener('keydown', (event) => {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  (event.ctrlKey || event.metaKey ? $('read') : $('send')).click();
});
addEventListener('keydown', (event) => { if (event.key === 'Escape') state.stop?.abort(); });
addEventListener('resize', look);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', look);  // the canvases have colours of their own
addEventListener('pagehide', () => {
  if (state.id) fetch('/v1/sessions/' + state.id, { method: 'DELETE', keepalive: true, headers:
    sessionStorage.getItem('weir-key') ? { Authorization: 'Bearer ' + sessionStorage.getItem('weir-key') } : {} });
});

async function start() {
  try {
    const props = await json('GET', '/props');
    $('log').replaceChildren();  // removes an earlier prompt for the key
    $('model').textContent = props.model.id;
    state.vision = props.vision;
    state.recall = props.recall;
    $('recall-field').hidden = !state.recall;
    $('recall').checked = state.recall && state.recall.selector !== 'off';
    const { params } = props.default_generation_settings;
    state.sampling = params.temperature > 0 ? 'temperature ' + params.temperature + ', top-k ' + params.top_k + ', top-p ' +
      params.top_p + ', min-p ' + params.min_p : 'greedy';
    if (params.repeat_penalty !== 1) state.sampling += ', repeat penalty ' + params.repeat_penalty;
    showVision();
    state.pieceBytes = Math.min(state.pieceBytes, Math.floor(props.max_body_bytes / 8));
    const given = props.policy.split(':')[0];
    $('policy').replaceChildren();
    for (const policy of props.policies) {
      const option = $('policy').appendChild(new Option(policy.name, policy.name === given ? props.policy : policy.name));
      option.title = policy.summary;
      option.selected = policy.name === given;
    }
    $('pot').value = props.pot;
    say('note', 'Ask a question, or read a file: a text of any length' + (state.vision ? ', a picture or a video' : '') +
      '. It passes through a pot of fixed size' + ($('recall').checked ?
      '; what leaves the pot stays on disk, and comes back when a question is about it.' : ', which forgets what does not fit.'));
    $('text').focus();
  } catch (error) {
    say('note error', error.message);
    $('key').addEventListener('change', start, { once: true });
  }
}
