// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them.

export function bytesText(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; ++i) n /= 1024;
  return n.toFixed(i && n < 100 ? 1 : 0) + ' ' + units[i];
}

export const countText = (n) => Math.round(n).toLocaleString('en');
// 950, 12.5k, 1.2M: for axes.
export const shortText = (n) => n >= 1e6 ? +(n / 1e6).toFixed(2) + 'M' : n >= 1e4 ? +(n / 1e3).toFixed(1) + 'k' : n.toLocaleString('en');
// A moment of a video.
export const clock = (ms) => Math.floor(ms / 60000) + ':' + (ms / 1000 % 60).toFixed(1).padStart(4, '0');
export const durationText = (seconds) => seconds < 90 ? Math.ceil(seconds) + ' s' : seconds < 5400 ?
  Math.round(seconds / 60) + ' min' : (seconds / 3600).toFixed(1) + ' h';
