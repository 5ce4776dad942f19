// SPDX-License-Identifier: Apache-2.0
// What all charts share: a canvas as sharp as the screen, numbers beside it, and a grid.
import { colour } from './theme.js';

const rem = () => parseFloat(getComputedStyle(document.documentElement).fontSize);
// Left of the plot stand the numbers (memory.css: .scrub).
export const plotLeft = () => 3.5 * rem();
const axisHeight = () => 1.4 * rem();

// At most about `n` round numbers from 0, or from `low`, to `high`; of bytes, powers of two.
export function ticks(low, high, n, binary = false) {
  const rough = Math.max((high - low) / n, 1e-9), power = binary ? 2 ** Math.floor(Math.log2(rough)) :
    10 ** Math.floor(Math.log10(rough));
  const step = power * (binary ? [1, 2] : [1, 2, 5, 10]).find((k) => k * power >= rough * 0.999);
  const out = [];
  for (let at = Math.ceil(low / step) * step; at <= high * 1.0001; at += step) out.push(at);
  return out;
}

// {g, left, width, height, x}: a cleared canvas in CSS pixels; the plot begins at `left` and, with an axis of tokens
// below, ends above the canvas's end. `range` of the stream is as wide as the plot.
export function plotOn(canvas, range, withAxis) {
  const ratio = devicePixelRatio, left = plotLeft(), whole = canvas.clientHeight;
  canvas.width = Math.round(canvas.clientWidth * ratio);
  canvas.height = Math.round(whole * ratio);
  const g = canvas.getContext('2d'), width = Math.max(1, canvas.clientWidth - left);
  g.scale(ratio, ratio);
  g.font = 0.7 * rem() + 'px system-ui, sans-serif';
  g.fillStyle = colour('panel');
  const height = whole - (withAxis ? axisHeight() : 0);
  g.fillRect(left, 0, width, height);
  const span = Math.max(1, range.to - range.from);
  return { g, left, width, height, x: (seq) => left + (seq - range.from) / span * width };
}

// The numbers of a scale on the left, with a grid. `y` maps a value to pixels.
export function scaleLeft({ g, left, width }, values, y, textOf) {
  g.textAlign = 'right';
  g.textBaseline = 'middle';
  for (const value of values) {
    g.fillStyle = colour('soft');
    g.fillText(textOf(value), left - 5, y(value));
    g.fillStyle = colour('line');
    g.fillRect(left, Math.round(y(value)), width, 1);
  }
}

// The tokens of the stream below a plot.
export function scaleBelow({ g, left, width, height, x }, range, textOf) {
  g.textBaseline = 'top';
  g.fillStyle = colour('soft');
  const values = ticks(range.from, range.to, Math.max(2, Math.floor(width / 90)));
  values.forEach((value, i) => {
    if (value % 1) return;
    const text = textOf(value) + (i === values.length - 1 ? ' tokens' : '');
    const at = x(value), half = g.measureText(text).width / 2;
    g.textAlign = 'center';
    g.fillText(text, Math.min(Math.max(at, left + half), left + width - half), height + 4);
    g.fillRect(Math.min(at, left + width - 1), height, 1, 3);
  });
}

// A line through points [seq, value], with those just outside of the range; its parts outside the plot are not seen.
export function line({ g, left, width, height, x }, points, y, style, dashes = []) {
  g.save();
  g.beginPath();
  g.rect(left, 0, width, height);
  g.clip();
  g.strokeStyle = style;
  g.lineWidth = 2;
  g.setLineDash(dashes);
  g.beginPath();
  for (const [seq, value] of points) g.lineTo(x(seq), y(value));
  g.stroke();
  g.restore();
}
