// SPDX-License-Identifier: Apache-2.0
// A generated clip for those who have none at hand: one shape after another, on a grey ground, as in the pictures that
// models/weir-tiny-llava was made with (tools/train/draw.py). The same second looks the same every time.

const kColours = { red: '#d72828', green: '#28a53c', blue: '#3250e1', yellow: '#ebd732', purple: '#9132b9', white: '#f5f5f5' };
const kScenes = [['red', 'circle'], ['blue', 'square'], ['yellow', 'triangle'], ['green', 'diamond'], ['white', 'square'],
  ['red', 'triangle'], ['purple', 'circle'], ['blue', 'diamond'], ['yellow', 'square'], ['green', 'circle']];
const kSceneMs = 5000;

export const clipName = 'a generated clip';
export const clipQuestions = ['What colour is it?', 'What shape is it?'];
export const clipRule = 'What colour is it? => red';

const kPaths = {
  circle: (g, r) => g.arc(0, 0, r, 0, 2 * Math.PI),
  square: (g, r) => g.rect(-0.86 * r, -0.86 * r, 1.72 * r, 1.72 * r),
  triangle: (g, r) => [[0, -1], [0.9, 0.8], [-0.9, 0.8]].forEach(([x, y]) => g.lineTo(x * r, y * r)),
  diamond: (g, r) => [[0, -1], [0.8, 0], [0, 1], [-0.8, 0]].forEach(([x, y]) => g.lineTo(x * r, y * r)),
};

// The clip at a time, over the whole canvas.
export function drawClip(canvas, ms) {
  const g = canvas.getContext('2d'), size = 64, [colour, shape] = kScenes[Math.floor(ms / kSceneMs) % kScenes.length];
  const part = (ms % kSceneMs) / kSceneMs;
  g.setTransform(canvas.width / size, 0, 0, canvas.height / size, 0, 0);
  g.fillStyle = '#303030';
  g.fillRect(0, 0, size, size);
  g.translate(26 + 12 * part, 32);
  g.beginPath();
  kPaths[shape](g, 13);
  g.fillStyle = kColours[colour];
  g.fill();
}
