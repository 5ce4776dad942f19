#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/prune/pruners.golden: random attention maps and the pruners' results for them.

    tools/golden/prune.py [--out tests/golden/prune]

An independent implementation of the papers' rules in NumPy. Format as in tiny_models.py:
  mass [1, image tokens], self.L.H [queries, queries], cross.L.H [queries, image tokens], outputs [queries, width]
                 signals of a picture; rows of maps sum to 1. Values are coarse, so that many are equal: ties are ranked
                 too.
  importance.S   [queries, 1] of the pruner with options S
  kept.S         the rows that stay

Needs numpy.
"""

import argparse
from pathlib import Path

import numpy as np

N_QUERIES, N_IMAGE, N_HEADS, N_CROSS, N_SELF, WIDTH = 32, 29, 3, 6, 4, 20


def coarse_map(rng, rows, cols):
    """Rows that sum to 1, of few different values."""
    levels = rng.integers(1, 9, (rows, cols)).astype(np.float64)
    # A common denominator per map keeps equal levels equal; the remainder to 1 goes to one column.
    p = levels / (8.0 * cols)
    p[:, 0] += 1.0 - p.sum(axis=1)
    return p.astype(np.float32)


def points(p):
    """[queries, image tokens]: the last of L0 queries by attention to a token gets 0 points, the first L0 - 1; a query
    that is equal to an earlier one ranks behind it."""
    p = p.astype(np.float64)
    ahead = (p[None, :, :] > p[:, None, :]).sum(axis=1)  # [q, i]: queries that are strictly better
    n = len(p)
    earlier = np.tril(np.ones((n, n)), -1)[:, :, None]
    ahead += ((p[None, :, :] == p[:, None, :]) * earlier).sum(axis=1).astype(int)
    return n - 1 - ahead


def contrast(p):
    """How much a map tells queries apart: the largest share of a token's attention, mean over tokens, less 1 / L0."""
    p = p.astype(np.float64)
    return (p.max(axis=0) / p.sum(axis=0)).mean() - 1 / len(p)


def catp(cross, layers, weights, by_map=lambda layer, p: 1):
    votes = ((by_map(layer, p), points(p) * weights) for (layer, _), p in cross.items() if layer in layers)
    return sum(weight * vote.sum(axis=1) for weight, vote in votes)


def cascade(own, share):
    """SpAtten's token pruning: after every layer but the last the least important drop out, for good, and what is left
    shares out the attention. Importance is summed over layers. Those that dropped out rank by when they did."""
    left = np.arange(N_QUERIES)
    sums = np.zeros(N_QUERIES)
    for layer in range(N_SELF):
        for head in range(N_HEADS):
            p = own[layer, head].astype(np.float64)[np.ix_(left, left)]
            sums[left] += (p / p.sum(axis=1, keepdims=True)).sum(axis=0)
        if layer + 1 < N_SELF:
            n = max(1, int(np.floor(N_QUERIES * share ** ((layer + 1) / N_SELF) + 0.5)))
            stay = np.array(sorted(sorted(left, key=lambda q: (-sums[q], q))[:n]))
            sums[np.setdiff1d(left, stay)] = layer - N_SELF
            left = stay
    return sums


def kept(importance, share):
    """Round half up, at least one; among equals the first."""
    n = max(1, int(np.floor(len(importance) * share + 0.5)))
    best = sorted(range(len(importance)), key=lambda q: (-importance[q], q))[:n]
    return np.array(sorted(best), dtype=np.float64)


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/prune/pruners.golden.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/prune")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    cross = {(layer, head): coarse_map(rng, N_QUERIES, N_IMAGE) for layer in range(N_CROSS) for head in range(N_HEADS)}
    own = {(layer, head): coarse_map(rng, N_QUERIES, N_QUERIES) for layer in range(N_SELF) for head in range(N_HEADS)}
    mass = rng.gamma(1.0, 1.0, N_IMAGE).astype(np.float32)
    outputs = rng.standard_normal((N_QUERIES, WIDTH)).astype(np.float32)

    even, weighted = np.ones(N_IMAGE), mass.astype(np.float64) * N_IMAGE / mass.astype(np.float64).sum()
    every = range(N_CROSS)
    results = {
        "catp:layers=all": catp(cross, every, even),
        "catp:layers=first": catp(cross, [0], even),
        "catp:layers=last": catp(cross, [N_CROSS - 1], even),
        "catp:layers=0+2+5": catp(cross, [0, 2, 5], even),
        "catp:layers=all,weights=image": catp(cross, every, weighted),
        "catp:layer_weights=contrast": catp(cross, every, even, lambda _, p: contrast(p)),
        "catp:layer_weights=3+1+0+1+1+2": catp(cross, every, even, lambda layer, _: (3, 1, 0, 1, 1, 2)[layer]),
        "l2": np.linalg.norm(outputs.astype(np.float64), axis=1),
        "self_attention": sum(p.astype(np.float64).sum(axis=0) for p in own.values()),
    }
    column = lambda values: np.asarray(values, dtype=np.float64).reshape(-1, 1)
    entries = {"mass": mass.reshape(1, -1), "outputs": outputs}
    entries.update({f"cross.{layer}.{head}": p for (layer, head), p in cross.items()})
    entries.update({f"self.{layer}.{head}": p for (layer, head), p in own.items()})
    shares = (0.5, 0.25, 0.125, 0.01, 0.3)
    for name, importance in results.items():
        entries[f"importance.{name}"] = column(importance)
        for share in shares:
            entries[f"kept.{name}{',' if ':' in name else ':'}keep={share}"] = column(kept(importance, share))
    for share in shares:
        name, importance = f"self_attention:cascade=on,keep={share}", cascade(own, share)
        entries[f"importance.{name}"] = column(importance)
        entries[f"kept.{name}"] = column(kept(importance, share))
    total = N_CROSS * N_HEADS * N_IMAGE * N_QUERIES * (N_QUERIES - 1) // 2
    assert results["catp:layers=all"].sum() == total, "every vote gives the same number of points"
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "pruners.golden"
    with open(path, "wb") as f:
        for name, values in entries.items():
            f.write(f"{name} {values.shape[0]} {values.shape[1]}\n".encode("ascii"))
            f.write(np.ascontiguousarray(values, dtype="<f4").tobytes())
    print(f"{path}: {len(entries)} entries, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
