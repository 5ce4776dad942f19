# SPDX-License-Identifier: Apache-2.0
"""Auxiliary losses that teach a decoder what a token stands for before any question needs it.

"In clip 57, what colour was it?" is answered in two steps: a clip's tokens pick up its number from the label before
them, and the question finds the tokens with its number. Neither step lowers the loss without the other, and answers
alone teach neither within thousands of steps: the decoder settles for the clips nearby. So the first step is taught
directly: after a few blocks, every token must predict, in the space of the numbers' embeddings, the last clip that
was named.

"What colour is the circle?" is the same problem within a picture of two things: a picture's row must predict colour,
shape and side of the thing there in the space of the words' embeddings, and the tokens after such a word must predict
the word, so that the two match. With the first loss alone, answers stay a guess between the two things for a thousand
steps; with both they are learned within a few hundred.
"""

import torch
from torch.nn import functional as F

from tools.train import world

AFTER_BLOCKS = 2
WEIGHT = 0.3  # weight of this loss, relative to the answers'
EVERY = 4  # tokens, one of which is sampled


class Naming:
    def __init__(self, encode, vocab, device):
        self.end, self.image = encode.eos, encode.image  # the end token also pads a batch's short rows
        numbers = torch.tensor([encode(f" {n}")[0] for n in range(world.N_NUMBERS)], device=device)
        self.numbers = numbers
        self.number_of = torch.full((vocab,), -1, device=device)
        self.number_of[numbers] = torch.arange(world.N_NUMBERS, device=device)
        self.words = [
            torch.tensor([encode(f" {word}")[0] for word in words], device=device)
            for words in (world.COLOURS, world.SHAPES, world.SIDES)
        ]
        self.thing_words = torch.cat(self.words)
        self.thing_of = torch.full((vocab,), -1, device=device)
        self.thing_of[self.thing_words] = torch.arange(len(self.thing_words), device=device)
        self.clip_words = torch.tensor([encode(word)[0] for word in (" Clip", " clip")], device=device)

    def labels(self, ids):
        """ids [n, t] -> the number of the clip that was last named, -1 before the first. Answers are numbers too: only
        those after the word clip count."""
        named = self.number_of[ids]
        named[:, 1:].masked_fill_(~torch.isin(ids[:, :-1], self.clip_words), -1)
        named[:, 0] = -1
        return self._until_next(named, ids)

    def clips(self, ids, early, embeddings):
        """early [n, t, width]: the hidden state after AFTER_BLOCKS blocks. (loss, (right, of))."""
        return _told(early[:, ::EVERY].flatten(0, 1), self.labels(ids)[:, ::EVERY].flatten(), embeddings[self.numbers])

    def asked(self, ids, early, embeddings):
        """early as clips() has it: every token of the text predicts the colour, shape or side last named: where an
        answer begins, the subject of the question. (loss, (right, of))."""
        labels = self._until_next(self.thing_of[ids], ids).masked_fill(ids == self.image, -1)
        return _told(early[:, ::EVERY].flatten(0, 1), labels[:, ::EVERY].flatten(), embeddings[self.thing_words])

    def things(self, rows, things, embeddings):
        """rows [n, width]: the same of the picture rows, things [n, 3] (world.things_at). (loss, (right, of))."""
        results = [_told(rows, things[:, i], embeddings[words]) for i, words in enumerate(self.words)]
        return sum(loss for loss, _ in results), tuple(sum(n) for n in zip(*(hits for _, hits in results)))

    def _until_next(self, named, ids):
        """[n, t] of names, -1 for none -> at every token the last one; -1 before the first, and in
        padding."""
        at = torch.where(named >= 0, torch.arange(ids.shape[1], device=ids.device), -1).cummax(1).values
        filled = (ids == self.end).flip(1).cumprod(1).flip(1).bool()  # the ends at the end
        return torch.where((at >= 0) & ~filled, named.gather(1, at.clamp(min=0)), -1)


def _told(early, labels, code):
    told = F.layer_norm(early.float(), early.shape[-1:]) @ code.float().T
    known = labels >= 0
    loss = F.cross_entropy(told, labels, ignore_index=-1, reduction="sum") / known.sum().clamp(min=1)
    return loss, (((told.argmax(-1) == labels) & known).sum(), known.sum())
