// SPDX-License-Identifier: Apache-2.0
// What every layer holds of the stream, and below it what is held, on disk and gone. One pixel of a small picture is one
// part of the stream in one layer, and the browser scales the picture: a map of a million tokens costs no more than one
// of a thousand.
import { countText } from './format.js';
import { plotOn } from './plot.js';
import { colour } from './theme.js';

const kModalities = { text: 'held', image: 'image', video: 'video' };
const kStates = { held: 'held', on_disk: 'disk', gone: 'gone' };

const rgb = (name) => colour(name).match(/\d+(\.\d+)?/g).slice(0, 3).map(Number);

function picture(width, height, paint) {
  const canvas = document.createElement('canvas');
  canvas.width = Math.max(1, width);
  canvas.height = Math.max(1, height);
  const g = canvas.getContext('2d'), image = g.createImageData(canvas.width, canvas.height);
  paint(image.data);
  g.putImageData(image, 0, 0);
  return canvas;
}

// Draws a picture of `held` where its part of the stream lies in the plot.
function place({ g, left, width, height, x }, held, image) {
  const begin = x(held.from), end = x(held.from + held.bins * held.tokens_per_bin);
  g.save();
  g.beginPath();
  g.rect(left, 0, Math.min(width, x(held.to) - left), height);
  g.clip();
  g.imageSmoothingEnabled = false;
  g.drawImage(image, begin, 0, end - begin, height);
  g.restore();
}

export function drawMap(canvas, held, range) {
  const plot = plotOn(canvas, range, false);
  if (!held || !held.bins) return;
  const { bins, layers } = held, panel = rgb('panel');
  const full = Math.max(1, held.tokens_per_bin);
  place(plot, held, picture(bins, layers, (pixels) => {
    for (let i = 0; i < bins * layers; ++i) pixels.set([...panel, 255], i * 4);
    for (const [modality, rows] of Object.entries(held.held)) {
      const ink = rgb(kModalities[modality] || 'held');
      rows.forEach((row, layer) => row.forEach((n, bin) => {
        if (!n) return;
        const part = Math.min(1, 0.15 + 0.85 * n / full), at = (layer * bins + bin) * 4;
        for (let c = 0; c < 3; ++c) pixels[at + c] += (ink[c] - pixels[at + c]) * part;
      }));
    }
  }));
  const { g, left, height } = plot;
  g.fillStyle = colour('soft');
  g.textAlign = 'right';
  const step = Math.max(1, Math.ceil(layers / 6));
  for (let layer = 0; layer < layers; layer += step) {
    g.textBaseline = layers === 1 ? 'middle' : 'top';
    g.fillText(layers === 1 ? 'all layers' : layer ? String(layer) : 'layer 0', left - 5, layers === 1 ? height / 2 :
      layer / layers * height);
  }
}

export function drawStates(canvas, held, range) {
  const plot = plotOn(canvas, range, false);
  if (!held || !held.bins) return;
  const { bins, states } = held, rows = 32, names = Object.keys(kStates), inks = names.map((name) => rgb(kStates[name]));
  place(plot, held, picture(bins, rows, (pixels) => {
    for (let bin = 0; bin < bins; ++bin) {
      const all = names.reduce((sum, name) => sum + states[name][bin], 0);
      let row = 0, sum = 0;
      names.forEach((name, i) => {
        sum += states[name][bin];
        for (const end = all ? Math.round(sum / all * rows) : 0; row < end; ++row) pixels.set([...inks[i], 255], (row * bins + bin) * 4);
      });
    }
  }));
  const sum = (name) => countText(states[name].reduce((a, b) => a + b, 0));
  canvas.setAttribute('aria-label', sum('held') + ' tokens held, ' + sum('on_disk') + ' on disk, ' + sum('gone') + ' gone');
}
