// SPDX-License-Identifier: Apache-2.0
// The scores of rules along the stream, the score at which an event begins, and the events.
import { shortText } from './format.js';
import { line, plotOn, scaleBelow, scaleLeft, ticks } from './plot.js';
import { colour } from './theme.js';

const kColours = ['held', 'image', 'video', 'disk', 'alarm'];
export const colourOfRule = (i) => kColours[i % kColours.length];

export function drawScores(canvas, rules, history, range) {
  const plot = plotOn(canvas, range, true);
  const of = (rule) => (history.scores.get(rule.id) || []);
  const seen = rules.flatMap((rule) => of(rule).filter((p) => p.seen >= range.from && p.seen <= range.to).map((p) => p.score));
  const high = Math.max(4, ...seen), low = Math.min(0, ...seen), y = (score) => plot.height - 4 -
    (score - low) / (high - low) * (plot.height - 8);
  scaleLeft(plot, ticks(low, high, 4), y, (score) => (score ? '' : 'score ') + +score.toFixed(1));
  scaleBelow(plot, range, shortText);
  const { g } = plot;
  rules.forEach((rule, i) => {
    const style = colour(colourOfRule(i));
    line(plot, [[range.from, rule.on], [range.to, rule.on]], y, style, [2, 5]);
    line(plot, of(rule).map((point) => [point.seen, point.score]), y, style);
  });
  for (const event of history.events) {
    const at = plot.x(event.seen), i = rules.findIndex((rule) => rule.id === event.rule);
    if (at < plot.left || at > plot.left + plot.width || i < 0) continue;
    g.fillStyle = colour(colourOfRule(i));
    g.beginPath();  // up: it began; down: it ended
    const [tip, base] = event.state === 'began' ? [1, 9] : [9, 1];
    g.moveTo(at, tip);
    g.lineTo(at - 5, base);
    g.lineTo(at + 5, base);
    g.fill();
  }
  canvas.setAttribute('aria-label', 'Scores of ' + rules.length + ' rules; ' + history.events.length + ' events');
}
