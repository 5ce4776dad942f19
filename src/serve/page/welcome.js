// SPDX-License-Identifier: Apache-2.0
// What an empty conversation shows: what this is, and things to do with one click, all of them with what the server has.
import { clipQuestions, clipRule } from './clip.js';
import { make } from './dom.js';

const kStory = 'The Keeper of Harrow Weir';
const kStoryPot = 512;  // less than the story, so that it is seen how a pot forgets
const kStoryQuestions = ['What was the dog called?', 'Who owned the mill?', 'What was the keeper of the house called?'];
// Greedy, and short: a small model wanders off otherwise.
const kStoryAnswers = { temperature: 0, repeat_penalty: 1.15, max_tokens: 40 };
const kQuestions = ['What is a weir?', 'Name three rivers in Europe.'];

const card = (title, text, act) => {
  const button = make('button', { type: 'button' }, make('strong', {}, title), make('span', {}, text));
  button.addEventListener('click', act);
  return button;
};

async function readStory(pane) {
  const response = await fetch('page/story.txt');
  if (!response.ok) throw new Error('the story cannot be loaded');
  if (!pane.session) Object.assign(pane.wish, { pot: Math.min(kStoryPot, pane.props.pot), recall: !!pane.props.recall });
  if (!Object.keys(pane.sampling).length) pane.sampling = { ...kStoryAnswers };
  await pane.readText(await response.text(), '“' + kStory + '”');
  await pane.ask(kStoryQuestions[0]);
  pane.conversation.suggest(kStoryQuestions, pane.ask);
}

async function watchClip(pane) {
  await pane.watchClip();
  if (pane.stage.open) await pane.rules.add(clipRule);
  pane.conversation.suggest(clipQuestions, pane.ask);
}

export function welcome(pane) {
  const { props } = pane, cards = make('div', { className: 'cards' });
  cards.append(card('Read a story', 'Some 1,300 words go through a pot of ' + Math.min(kStoryPot, props.pot) +
    ' tokens; then a question about them.', () => readStory(pane).catch((error) => pane.conversation.error(error.message))));
  if (props.vision) {
    cards.append(card('Watch a clip', 'Shapes pass by, two frames a second. Ask what you see, and be told when something is red.',
      () => watchClip(pane).catch((error) => pane.conversation.error(error.message))));
  }
  cards.append(card('Ask a question', '“' + kQuestions[0] + '”', async () => {
    await pane.ask(kQuestions[0]);
    pane.conversation.suggest(kQuestions.slice(1), pane.ask);
  }));
  cards.append(card('Read a file of yours', 'A text of any length' + (props.vision ? ', a picture or a video' : '') +
    '. It stays on this server.', () => pane.parts.attach.click()));
  return pane.conversation.say('welcome', make('h3', {}, 'A language model that reads without end in a memory that does not grow'),
    make('p', {}, 'Everything you give it passes through a pot of ' + props.pot.toLocaleString('en') + ' tokens. What does not fit is ' +
      (props.recall ? 'forgotten, or kept on disk until a question is about it' : 'forgotten') +
      '. Beside the conversation you see what is still held, token by token.'), cards);
}
