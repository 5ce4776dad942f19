// SPDX-License-Identifier: Apache-2.0
// Requests to the server that the page came from.

let key = sessionStorage.getItem('weir-key') || '';
export const setKey = (given) => { key = given; };

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const headers = (more) => ({ ...more, ...(key ? { Authorization: 'Bearer ' + key } : {}) });

export async function call(method, path, body, signal, more = {}) {
  const response = await fetch(path, { method, signal, headers: headers({ 'Content-Type': 'application/json', ...more }),
    body: body && JSON.stringify(body) });
  if (response.ok) {
    if (key) sessionStorage.setItem('weir-key', key);
    return response;
  }
  let message = 'status ' + response.status;
  try { message = (await response.json()).error.message; } catch { /* not a JSON error from the server */ }
  throw new ApiError(response.status, message);
}

export const json = async (...args) => (await call(...args)).json();

// For the moment at which the page goes: nobody waits for the answer.
export function farewell(path) {
  fetch(path, { method: 'DELETE', keepalive: true, headers: headers({}) }).catch(() => {});
}

// Yields {id, event, data} of a stream of server-sent events, whose data are JSON; ends with it, or at [DONE].
export async function* events(response) {
  const decoder = new TextDecoder(), reader = response.body.getReader();
  for (let text = '';;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) {
      const event = {};
      for (const line of text.slice(0, end).split('\n')) {
        const colon = line.indexOf(': ');
        if (colon > 0) event[line.slice(0, colon)] = line.slice(colon + 2);
      }
      if (event.data === undefined) continue;  // a comment: the model is still reading
      if (event.data === '[DONE]') return;
      yield { ...event, data: JSON.parse(event.data) };
    }
  }
}
