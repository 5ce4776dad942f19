"""How a decoder learns what a token stands for, before anything asks for it.

"In clip 57, what colour was it?" is answered in two steps: a clip's tokens take up its number from the label before them, and
the question finds those that have its own. Neither step earns anything without the other, and answers alone teach
neither within thousands of steps: the decoder settles for the clips nearby. So the first step is taught by itself: after a few
blocks, every token is to tell, in the code of the numbers' embeddings, the last clip that was named.

"What colour is the circle?" is the same riddle within a picture of two things: a picture's row is to tell the colour and the shape
of what stands there in the code of the words, so that the word can find it.
"""

import torch
from torch.nn import functional as F

import world

AFTER_BLOCKS = 2
WEIGHT = 0.3  # of this loss, beside the answers'
EVERY = 4     # tokens, of which one is asked


class Naming:
    def __init__(self, encode, vocab, device):
        numbers = torch.tensor([encode(f" {n}")[0] for n in range(world.N_NUMBERS)], device=device)
        self.numbers = numbers
        self.number_of = torch.full((vocab,), -1, device=device)
        self.number_of[numbers] = torch.arange(world.N_NUMBERS, device=device)
        self.words = [torch.tensor([encode(f" {word}")[0] for word in words], device=device)
                      for words in (world.COLOURS, world.SHAPES)]
        self.clip_words = torch.tensor([encode(word)[0] for word in (" Clip", " clip")], device=device)

    def labels(self, ids):
        """ids [n, t] -> the number of the clip that was last named, -1 before the first. Answers are numbers too: what
        counts stands behind the word clip."""
        named = self.number_of[ids]
        named[:, 1:].masked_fill_(~torch.isin(ids[:, :-1], self.clip_words), -1)
        named[:, 0] = -1
        at = torch.where(named >= 0, torch.arange(ids.shape[1], device=ids.device), -1).cummax(1).values
        return torch.where(at >= 0, named.gather(1, at.clamp(min=0)), -1)

    def clips(self, ids, early, embeddings):
        """early [n, t, width]: what stands behind AFTER_BLOCKS blocks. (loss, (right, of))."""
        return _told(early[:, ::EVERY].flatten(0, 1), self.labels(ids)[:, ::EVERY].flatten(), embeddings[self.numbers])

    def things(self, rows, things, embeddings):
        """rows [n, width]: the same of the picture rows, things [n, 2] (world.things_at). (loss, (right, of))."""
        results = [_told(rows, things[:, i], embeddings[words]) for i, words in enumerate(self.words)]
        return sum(loss for loss, _ in results), tuple(sum(n) for n in zip(*(hits for _, hits in results)))


def _told(early, labels, code):
    told = F.layer_norm(early.float(), early.shape[-1:]) @ code.float().T
    known = labels >= 0
    loss = F.cross_entropy(told, labels, ignore_index=-1, reduction="sum") / known.sum().clamp(min=1)
    return loss, (((told.argmax(-1) == labels) & known).sum(), known.sum())
