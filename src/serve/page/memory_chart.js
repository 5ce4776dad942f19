// SPDX-License-Identifier: Apache-2.0
// Bytes of a session as its stream grew, beside those of a cache that forgets nothing.
import { bytesText, shortText } from './format.js';
import { line, plotOn, scaleBelow, scaleLeft, ticks } from './plot.js';
import { colour } from './theme.js';

export function drawMemory(canvas, samples, range) {
  const plot = plotOn(canvas, range, true), last = samples.at(-1);
  if (!last) return;
  const most = Math.max(last.bytes, last.unbounded) * 1.15, y = (bytes) => plot.height - bytes / most * plot.height;
  scaleLeft(plot, ticks(0, most, 4, true).filter((bytes) => y(bytes) > 6), (bytes) => Math.min(y(bytes), plot.height - 6), bytesText);
  scaleBelow(plot, range, shortText);
  for (const [name, style, dashes] of [['unbounded', 'alarm', [5, 4]], ['bytes', 'held', []]]) {
    line(plot, samples.map((sample) => [sample.seen, sample[name]]), y, colour(style), dashes);
  }
  canvas.setAttribute('aria-label', 'Memory by tokens read: this session has ' + bytesText(last.bytes) + ' at ' +
    last.seen.toLocaleString('en') + ' tokens; a cache that forgets nothing would have ' + bytesText(last.unbounded));
}
