#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How far a token's surprise is off when its normaliser is sampled (src/ops/nll.h).

    tools/reference/sampled_normaliser.py MODEL.gguf TEXT...

Reads 1,536 tokens of every text, computes -log P of each with the whole vocabulary and with the sample, and prints the
error, and how many of the most surprising quarter of every 512 tokens both choose. Needs torch, transformers, gguf and
accelerate.
"""

import argparse
import math
import pathlib

import torch
import transformers

SIZE, EVERY, FIRST = 128, 16, 12  # NllTiles: ids of a tile, one tile in EVERY, the first ids / FIRST


def sampled(logits, target):
    n_vocab = logits.shape[1]
    n_first = n_vocab // FIRST // SIZE * SIZE
    n_tiles = (n_vocab - n_first) // SIZE // EVERY
    starts = n_first + (torch.arange(n_tiles) * EVERY + EVERY // 2) * SIZE
    ids = (starts[:, None] + torch.arange(SIZE)).flatten()
    weight = math.log((n_vocab - n_first) / len(ids))
    of_target = logits.gather(1, target[:, None])[:, 0]
    sample = logits[:, ids].masked_fill(ids[None, :] == target[:, None], -math.inf) + weight
    total = torch.logaddexp(logits[:, :n_first].logsumexp(1), sample.logsumexp(1))
    total = torch.where(target < n_first, total, torch.logaddexp(total, of_target))
    return total - of_target, (n_first + len(ids)) / n_vocab


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path, nargs="+")
    args = parser.parse_args()
    where = {"pretrained_model_name_or_path": str(args.model.parent), "gguf_file": args.model.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**where)
    tokenizer = transformers.AutoTokenizer.from_pretrained(**where)
    exact, estimate = [], []
    for path in args.text:
        ids = tokenizer(path.read_text(errors="replace")[:40000])["input_ids"][:1537]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, :-1].float()
        target = torch.tensor(ids[1:])
        exact.append(logits.logsumexp(1) - logits.gather(1, target[:, None])[:, 0])
        one, share = sampled(logits, target)
        estimate.append(one)
    exact, estimate = torch.cat(exact), torch.cat(estimate)
    error = estimate - exact
    both = [
        len(set(a.topk(128).indices.tolist()) & set(b.topk(128).indices.tolist())) / 128
        for a, b in zip(exact.split(512), estimate.split(512))
        if len(a) == 512
    ]
    print(
        f"{len(exact)} tokens, {share:.3f} of the vocabulary: nll {exact.mean():.2f} +- {exact.std():.2f}; "
        f"error: mean {error.mean():+.3f}, root mean square {error.square().mean().sqrt():.3f}, "
        f"median {error.abs().median():.3f}; the same in the top quarter: {sum(both) / len(both):.3f}"
    )


if __name__ == "__main__":
    main()
