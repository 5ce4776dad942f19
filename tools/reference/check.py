#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the reference policies against facts that follow from the methods' definitions, and the golden files against
the reference.

    pip install numpy
    tools/reference/check.py
"""

import json
import pathlib
import sys
from functools import partial

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tools.reference import common, policies, replay
from tools.reference.contract import ViewPolicy
from tools.reference.policies import (
    a_vl,
    adakv,
    fastv,
    h2o,
    inf_mllm,
    infinipot,
    infinipot_v,
    keydiff,
    keyformer,
    pyramidkv,
    sirllm,
    snapkv,
    streaming_llm,
    tova,
    value_norm,
    weir,
    window,
)

TESTS = pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"
GOLDEN = TESTS / "policy"
RNG = np.random.RandomState(7)


def expect(condition, what):
    if not condition:
        raise SystemExit(f"FAILED: {what}")


def expect_equal(got, want, what):
    expect(got == want, f"{what}: got {got}, want {want}")


def expect_rejected(call, what):
    try:
        call()
    except common.BudgetError:
        return
    raise SystemExit(f"FAILED: {what} was accepted")


def softmax_rows(n_heads, n_rows, n_slots):
    """Random causal attention of the newest n_rows slots."""
    logits = RNG.normal(size=(n_heads, n_rows, n_slots)) * 2
    logits[:, np.arange(n_slots)[None] > np.arange(n_slots - n_rows, n_slots)[:, None]] = -np.inf
    weights = np.exp(logits)
    return weights / weights.sum(axis=2, keepdims=True)


def check_ties_and_pooling():
    expect_equal(common.ranked([1, 3, 3, 0]), [2, 1, 0, 3], "newer wins a tie")
    expect_equal(common.ranked([2, 2, 2], [0, 5, 1]), [1, 2, 0], "score before pooling decides first")
    expect_equal(common.pool(np.array([0.0, 4, 0, 0, 2]), 3, "max").tolist(), [4, 4, 4, 2, 2], "max pooling")
    expect_equal(common.pool(np.array([3.0, 0, 0, 6]), 3, "avg").tolist(), [1, 1, 2, 2], "average counts padding")
    per_head = np.array([[1.0, 0], [3, 0], [0, 8], [0, 2]])
    for how, want in (("mean", [[2, 0], [0, 5]]), ("sum", [[4, 0], [0, 10]]), ("max", [[3, 0], [0, 8]])):
        expect_equal(common.reduce_heads(per_head, 2, how).tolist(), want, f"head groups by {how}")


def check_window_and_sinks():
    expect_equal(window.keep(10, 4), [[6, 7, 8, 9]], "window")
    expect_equal(window.keep(10, 4, [slot in (0, 8) for slot in range(10)]), [[0, 7, 8, 9]], "window with pins")
    expect_equal(streaming_llm.keep(10, 6, sinks=2), [[0, 1, 6, 7, 8, 9]], "sinks and window")
    expect_equal(streaming_llm.keep(10, streaming_llm.budget(8, 3), sinks=4), [[0, 1, 2, 3, 9]], "room for a prompt")
    expect_equal(streaming_llm.keep(10, 7, sinks=0), window.keep(10, 7), "no sinks is the window")
    crowd = [slot in (3, 4, 5, 6) for slot in range(10)]
    expect_equal(streaming_llm.keep(10, 5, crowd, sinks=4), [[3, 4, 5, 6, 9]], "the newest slot goes before sinks")
    expect_rejected(lambda: streaming_llm.keep(10, 4, sinks=4), "a budget of sinks only")
    expect_rejected(lambda: window.keep(10, 3, crowd), "more pins than budget")


def check_inf_mllm():
    n, n_recent, r = 40, 8, 12
    constant = np.full((1, n), 0.125)
    for b in (1.0, 0.01, 1e-4):
        expect_equal(
            inf_mllm.keep(constant, r + n_recent, recent=n_recent, b=b),
            [list(range(n - r - n_recent, n))],
            "constant attention keeps the newest",
        )
    spikes = [0, 3, 4, 11, 15, 20, 21, 22, 25, 26, 28, 30]
    planted = constant.copy()
    planted[0, spikes] = 0.5
    expect_equal(
        inf_mllm.keep(planted, r + n_recent, recent=n_recent, b=0.0),
        [spikes + list(range(n - n_recent, n))],
        "spikes without bias",
    )
    n_candidates, b, background = n - n_recent, 0.5, 0.125
    threshold = background + b * (n_candidates - r) / n_candidates  # 32 candidates: every value here is exact
    for above in (-(2**-10), 0, 2**-10):
        row = np.full((1, n), background)
        row[0, 0] = threshold + above
        kept = inf_mllm.keep(row, r + n_recent, recent=n_recent, b=b)[0]
        expect_equal(0 in kept, above > 0, f"the oldest slot at {above} above its threshold")
    for _ in range(50):
        attention = softmax_rows(4, 3, n)
        last = inf_mllm.scores(attention, recent=1)
        expect(np.array_equal(last, tova.scores(attention)), "one row of Inf-MLLM is TOVA's")
        newest = np.arange(n) == n - 1
        expect_equal(
            inf_mllm.keep(last, 10, recent=1, b=0.0),
            tova.keep(tova.scores(attention), 10, newest),
            "l = 1, b = 0 is TOVA with the newest slot protected",
        )
    expect_equal(
        inf_mllm.scores(np.ones((2, 3, 9)), recent=8).tolist(), [[1.0] * 9], "a prompt of m < l rows is divided by m"
    )
    for _ in range(20):
        row = RNG.gamma(0.3, 0.01, n)
        for old, most in ((0.0, 0), (0.05, 1), (0.25, 3), (1.0, r)):
            b = inf_mllm.found_bias(row, n_recent, r + n_recent, old)

            def n_old(penalty, row=row):
                kept = inf_mllm.keep(row[None], r + n_recent, recent=n_recent, b=penalty)[0]
                return sum(slot < n_candidates - r for slot in kept)

            expect(n_old(b * (1 + 1e-9)) <= most, f"at most {most} old slots")
            expect(b == 0 or n_old(b * (1 - 1e-9)) > most, "a smaller penalty would keep more")
        expect_equal(b, 0.0, "all may be old: no penalty")
    expect_rejected(lambda: inf_mllm.keep(constant, 7, recent=8), "a budget below the recent slots")


def check_infinipot():
    for _ in range(50):
        n, n_keep, n_heads = 48, int(RNG.randint(1, 48)), 4
        u = infinipot.scores(softmax_rows(8, 5, n), n_heads)
        nll = RNG.randint(0, 30, n) / 8
        nll[0] = np.inf
        every_head = np.tile(nll, (n_heads, 1))
        cap = infinipot.keep(u, every_head, n_keep, alpha=0.0)
        expect_equal(cap, [sorted(common.ranked(row)[:n_keep]) for row in u], "alpha = 0 ranks by the catalyst")
        novel = infinipot.keep(None, every_head, n_keep, alpha=1.0)
        expect(all(kept == novel[0] for kept in novel), "alpha = 1 keeps the same in all heads")
        expect_equal(novel[0], sirllm.keep(nll, n_keep, sinks=0, recent=0)[0], "alpha = 1 is SirLLM without sinks")
        half = infinipot.keep(u, every_head, n_keep, alpha=0.5)
        surprising = set(common.ranked(nll)[: common.round_half_up(n_keep / 2)])
        expect(all(len(kept) == n_keep and surprising <= set(kept) for kept in half), "both halves, disjoint")
    for n_tokens in range(1, 200):
        entries, cycles, left = 0, 0, n_tokens
        while left:
            if entries == 32 - 4:
                entries, cycles = 16, cycles + 1
            entries, left = entries + 1, left - 1
        expect_equal(infinipot.cycles(n_tokens, 32, 16, 4), cycles, f"distillations of {n_tokens} tokens")
    expect_rejected(lambda: infinipot.cycles(100, 32, 28, 4), "a catalyst without room")
    # Text, a picture of 4, text: the median of 1, 2, 3, 9 is 2.5, whatever the stored values of the picture are.
    nll, frames = np.array([np.inf, 1, 9, 0, 7, 0, 0, 3, 2]), [-1, -1, -1, 3, 3, 3, 3, -1, -1]
    u = np.array([0, 0, 0, 4, 1, 3, 2, 0, 0.0])
    order = [0, 2, 7, 3, 5, 6, 4, 8, 1]  # the picture between 3 and 2, by u
    for n_keep in range(1, 10):
        kept = infinipot.keep([u], [nll], n_keep, alpha=1.0, frames=[frames])
        expect_equal(kept, [sorted(order[:n_keep])], "visual tokens count as the median of the text")
    kept = infinipot.keep(None, [nll], 6, alpha=1.0, frames=[frames])
    expect_equal(kept, [[0, 2, 4, 5, 6, 7]], "without a catalyst the newest of them")


def check_sirllm():
    # A model that predicts what followed the last occurrence of the current token, and is uniform otherwise.
    string = RNG.permutation(50)[:40].tolist()
    tokens, last, logits = string + string, {}, []
    for i, token in enumerate(tokens):
        row = np.zeros(50)
        if token in last and last[token] + 1 < i:
            row[tokens[last[token] + 1]] = 8.0
        last[token] = i
        logits.append(row)
    nll = common.nll(logits, tokens)
    expect(np.isinf(nll[0]), "nothing predicted the first token")
    expect(nll[41:].mean() < 0.1 * nll[1:40].mean(), "a second copy must surprise less")
    shifted = common.nll(np.array(logits)[1:], tokens[1:], before=logits[0])
    expect(np.array_equal(nll[1:], shifted), "a chunk continues with the last row of the one before")
    # The published code's formula: row i gathers token i itself, then the list shifts by one.
    log_p = np.array(logits) - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    misaligned = -log_p[np.arange(79), tokens[:79]]
    expect(not misaligned[40:].mean() < misaligned[:39].mean(), "the check would not tell the two formulas apart")
    expect_equal(sirllm.keep(np.array([0.0, 9, 1, 8, 2, 7, 3]), 4, sinks=1), [[0, 1, 3, 5]], "sinks and surprise")
    values = np.array([9.0, 0, 1, 8, 2, 7, 3])
    expect_equal(sirllm.keep(values, 4, sinks=1), [[0, 3, 5, 6]], "an overlap is filled newest first")
    expect_equal(sirllm.keep(values, 4, sinks=1, recent=3), [[0, 4, 5, 6]], "no room for surprise")
    expect_equal(sirllm.decayed(np.array([np.inf, 2.0]), 0.5).tolist(), [np.inf, 1.0], "decay")
    expect_rejected(lambda: sirllm.keep(np.arange(9.0), 4, sinks=4), "a budget of sinks only")


def check_h2o():
    first = softmax_rows(4, 6, 6)
    sums = h2o.accumulate(None, first, 2)
    expect(np.allclose(sums.sum(axis=1), 6), "each row adds one")
    split = h2o.accumulate(h2o.accumulate(None, first[:, :4, :4], 2), first[:, 4:], 2)
    expect(np.allclose(split, sums), "two chunks add up to one")
    expect_equal(h2o.count_queries(h2o.count_queries(None, 4), 2), [6, 5, 4, 3, 2, 1], "queries that saw a slot")
    row = np.array([[5.0, 1, 9, 2, 0, 0]])
    expect_equal(h2o.keep(row, 4, recent=2), [[0, 2, 4, 5]], "two heavy hitters and two recent")
    expect_equal(h2o.keep(row, 3, recent=0), [[0, 2, 3]], "no recent slot")
    expect_equal(h2o.keep(row, 2, recent=5), [[4, 5]], "a budget below recent")
    expect_equal(h2o.keep(row, 2, recent=0, counts=[6, 5, 4, 1, 1, 1]), [[2, 3]], "by the number of queries")
    expect_equal(tova.keep(np.array([[0.5, 0.1, 0.1, 0.3]]), 1), [[0]], "TOVA does not protect the newest slot")


def check_keyformer():
    rows, n = [4, 5, 6, 9, 10, 11], 6
    logits = RNG.normal(size=(4, n, n)) * 2
    logits[:, np.arange(n)[None] > np.arange(n)[:, None]] = -np.inf
    exp = np.exp(logits)
    first = exp / exp.sum(axis=2, keepdims=True)
    plain = keyformer.accumulate(None, first, rows, 2, noisy=False)
    expect(np.allclose(plain, h2o.accumulate(None, first, 2)), "no noise and tau = 1 is H2O")
    for seed, layer, tau in ((0, 0, 1.0), (7, 3, 1.5), (7, 3, 0.5)):
        got = keyformer.accumulate(None, first, rows, 2, seed, layer, [tau] * n)
        expect(np.allclose(got.sum(axis=1), n), "each row adds one")
        want = np.zeros((4, n))
        for head in range(4):
            for i, row in enumerate(rows):
                x = np.exp((logits[head, i] + keyformer.gumbel(seed, layer, head, row, n)) / tau)
                want[head] += x / x.sum()
        expect(np.allclose(got, common.reduce_heads(want, 2)), "the softmax of (x + g) / tau")
        again = keyformer.accumulate(None, first[:, :4, :4], rows[:4], 2, seed, layer, [tau] * 4)
        again = keyformer.accumulate(again, first[:, 4:], rows[4:], 2, seed, layer, [tau] * 2)
        expect(np.allclose(again, got), "two chunks add up to one")
    other = keyformer.accumulate(None, first, rows, 2, 8, 3, [0.5] * n)
    expect(not np.allclose(other, got), "another seed votes otherwise")
    flat = keyformer.accumulate(None, first[:, -1:], rows[-1:], 4, 0, 0, [1e6])
    expect(np.allclose(flat, 1 / n, atol=1e-5), "the hottest row votes for all alike")
    noise = np.concatenate([keyformer.gumbel(3, 1, head, row, 500) for head in range(4) for row in range(20)])
    expect(np.all(np.isfinite(noise)), "no noise is infinite")
    # Mean and variance of a standard Gumbel, within five standard errors of 40,000 draws.
    expect(abs(noise.mean() - 0.5772157) < 5 * 1.28 / 200, f"mean of the noise: {noise.mean()}")
    expect(abs(noise.var() - np.pi**2 / 6) < 5 * 3.5 / 200, f"variance of the noise: {noise.var()}")
    # The largest of x + g is slot s with probability softmax(x)[s].
    x = np.log([0.5, 0.3, 0.15, 0.05])
    best = [int(np.argmax(x + keyformer.gumbel(1, 0, 0, row, 4))) for row in range(4000)]
    shares = np.bincount(best, minlength=4) / 4000
    expect(np.all(abs(shares - np.exp(x)) < 5 * np.sqrt(0.25 / 4000)), f"the Gumbel-max trick: {shares}")
    taus = [keyformer.temperature(1.0, 2.0, 100, t) for t in (0, 1, 50, 100, 200)]
    expect(np.allclose(taus, [1, 1.01, 1.5, 2, 2]), f"temperatures of an answer: {taus}")
    row = np.array([[5.0, 1, 9, 2, 0, 0]])
    expect_equal(keyformer.keep(row, 4, recent=2), [[0, 2, 4, 5]], "two key tokens and two recent")


def check_snapkv():
    for kernel in (1, 3, 5, 7):
        for spike in range(10, 30):
            for window_size in (1, 4, 8):
                n = 48
                row = RNG.randint(0, 50, (1, n)) / 4096
                row[0, spike] = 0.5
                kept = snapkv.keep(row, window_size + kernel, window=window_size, kernel=kernel, pooling="max")[0]
                wanted = list(range(spike - kernel // 2, spike + kernel // 2 + 1)) + list(range(n - window_size, n))
                expect_equal(kept, wanted, "a spike keeps its neighbours before anything lower, and the window stays")
    # The window's own scores are high and must not leak into the candidates through pooling.
    row = np.array([[0.25, 0, 0, 0, 0, 0, 9, 9]])
    expect_equal(snapkv.keep(row, 3, window=2, kernel=3, pooling="max"), [[0, 6, 7]], "pooling stops at the window")
    for module, options in ((snapkv, {}), (adakv, {"floor": 0.0})):
        on_the_window = partial(module.keep, np.ones((1, 9)), 4, window=4, **options)
        expect_rejected(on_the_window, "a budget of the window only")
    attention = softmax_rows(4, 6, 30)
    multi = snapkv.scores(attention, 4, 4)
    for how in ("mean", "max", "sum"):
        expect(np.array_equal(snapkv.scores(attention, 4, 4, how), multi), "groups of one head need no reduction")


def check_pyramid_and_heads():
    budgets = [pyramidkv.layer_budget(10, 2, 4, layer, 3, 40) for layer in range(3)]
    expect_equal(budgets, [16, 10, 4], "a pyramid that divides evenly")
    budgets = [pyramidkv.layer_budget(10, 2, 4, layer, 3, 16) for layer in range(3)]
    expect_equal(budgets, [16, 10, 4], "the lowest layer stops at the prompt")
    expect_equal(pyramidkv.layer_budget(10, 2, 4, 0, 3, 15), 10, "a prompt too short for a pyramid")
    expect_equal(pyramidkv.layer_budget(10, 2, 4, 0, 3, 9), 9, "a prompt within the budget")
    # A full pot that is read into: 60 slots in every layer, of which 6 are freed again and again.
    fullest = 66
    for _ in range(20):
        budgets = [pyramidkv.layer_budget(60, 4, 5, layer, 5, fullest, full_pot=True) for layer in range(5)]
        expect(0 <= sum(budgets) - 5 * 60 < 10, "a full pot is used whole")
        fullest = max(budgets) + 6
    published = [pyramidkv.layer_budget(60, 4, 5, layer, 5, 400) for layer in range(5)]
    expect_equal(budgets, published, "and comes to have the published shape")
    for n_layers in (2, 3, 7, 32):
        for n in (60, 90, 400):
            total = sum(pyramidkv.layer_budget(50, 8, 20, layer, n_layers, n) for layer in range(n_layers))
            expect(0 <= total - 50 * n_layers < n_layers * (n_layers - 1) / 2, "the total is C or a little more")
    spread = np.array([[8.0, 7, 6, 5, 4, 3, 0, 0], [1.0, 0, 0, 0, 0, 0, 0, 0]])
    one = {"window": 2, "kernel": 1}
    expect_equal(adakv.keep(spread, 4, floor=0.0, **one), [[0, 1, 2, 3, 6, 7], [6, 7]], "heads compete")
    expect_equal(adakv.keep(spread, 4, floor=0.5, **one), [[0, 1, 2, 6, 7], [0, 6, 7]], "each head has its floor")
    for _ in range(50):
        row = RNG.randint(0, 20, (3, 30)) / 64
        snap = snapkv.keep(row, 12, window=4, kernel=5, pooling="max")
        expect_equal(adakv.keep(row, 12, window=4, kernel=5, pooling="max", floor=1.0), snap, "a full floor is SnapKV")


def check_norms():
    values = np.array([[[3.0, 4], [0, 0], [1, 0], [6, 8]]])
    expect_equal(value_norm.scores(values).tolist(), [[5, 0, 1, 10]], "norms")
    expect_equal(value_norm.keep(value_norm.scores(values), 2), [[0, 3]], "longest values")
    keys = np.array([[[1.0, 0], [2, 0], [5, 0], [-1, 0], [0, 1]]])
    expect_equal(keydiff.keep(keydiff.scores(keys), 2), [[3, 4]], "keys away from the mean")
    longer = keys * np.array([1.0, 9, 1, 4, 2])[None, :, None]
    expect(np.allclose(keydiff.scores(keys), keydiff.scores(longer)), "lengths of keys do not matter")


def check_infinipot_v():
    rows, n_columns = list(range(42)) * 2, 6
    frames = [0] * 42 + [42] * 42
    norms = RNG.random(84)
    for layer, half in ((0, 3), (1, 2)):
        got = infinipot_v.pooled(norms, frames, rows, n_columns, layer, 4).reshape(2, 7, 6)
        for frame, grid in enumerate(norms.reshape(2, 7, 6)):
            for y in range(7):
                for x in range(6):
                    near = grid[max(0, y - half) : y + half + 1, max(0, x - half) : x + half + 1]
                    expect(
                        np.isclose(got[frame, y, x], near.sum() / (2 * half + 1) ** 2), "means over a frame's places"
                    )
    row = infinipot_v.pooled(norms, frames, rows, n_columns, 2, 4)
    expect(np.allclose(row, np.convolve(norms, np.ones(3) / 3, "same")), "three in a row")
    expect(np.array_equal(infinipot_v.pooled(norms, frames, rows, n_columns, 3, 4), norms), "none in the last quarter")
    text = infinipot_v.pooled(norms, [-1] * 84, [0] * 84, n_columns, 0, 4)
    expect(np.array_equal(text, norms), "text keeps its norms")
    flat = infinipot_v.pooled(np.ones(49 * 3), np.repeat([0, 49, 98], 49), list(range(49)) * 3, 7, 0, 4)
    expect(flat.max() == 1 and (flat == 1).sum() == 3, "only the middle of 7 x 7 has all its neighbours")


def check_weir():
    n, n_keep = 100, 40
    flat, even = np.full((1, n), 2.5), np.full((1, n), 1 / 128)
    flat[0, 0] = np.inf
    newest = [*range(4), *range(n - 36, n)]
    expect_equal(weir.keep(even, flat, n_keep), [newest], "where nothing stands out, sinks and the newest")
    for at in range(6, n - 4):
        planted = flat.copy()
        planted[0, at : at + 3] = 9
        kept = weir.keep(even, planted, n_keep, z=6.0)[0]
        expect({at, at + 1, at + 2} <= set(kept), "a surprising span stays at any age")
        expect(len(set(kept) - set(newest)) <= 7, "and costs the newest no more than itself and its neighbours")
    noise = RNG.randint(0, 4096, (1, n)) / 4096
    for alpha in (0.0, 0.1, 0.5, 1.0):
        for beta in (0.0, 0.1, 0.5):
            kept = weir.keep(noise, noise, n_keep, alpha=alpha, beta=beta, z=0.0, saddle=1.0, saddles="always")[0]
            cap = common.round_half_up(alpha * n_keep) + common.round_half_up(beta * n_keep)
            expect(len(set(kept) - set(newest)) <= cap, "shares are not exceeded")
            expect(kept[-1] == n - 1 and kept[:4] == newest[:4], "sinks and the newest slot stay")
    for above in (-(2**-10), 0, 2**-10):
        spike = np.zeros((1, 64))
        spike[0, 20] = 0.125 + above  # 8 / 64
        kept = weir.keep(spike, flat[:, :64], 16, saddle=8.0, kernel=1, saddles="always")[0]
        expect_equal(20 in kept, above > 0, "a saddle is above its bar")
        aged = spike + 0.5 * 43 / 64  # its age penalty at b = 0.5
        aged[0, :20] = aged[0, 21:] = 0
        kept = weir.keep(aged, flat[:, :64], 16, saddle=8.0, kernel=1, b=0.5, saddles="always")[0]
        expect_equal(20 in kept, above > 0, "a saddle is above its bar and the penalty of its age")
    kept = weir.keep(spike, flat[:, :64], 16, saddle=8.0, kernel=1)[0]
    expect(20 not in kept, "text alone has no saddles")
    # Two scenes of four slots each; what the first frame of the older one showed is repeated by slots 8 to 11.
    scenes = [[0] * 4 + [1] * 4 + [-1] * 4 + [2] * 4 + [0] * 8]
    visual = np.array([[0.0] * 4 + [4, 3, 2, 1] * 3 + [0.0] * 8])
    frames = np.where(np.array(scenes) == 0, -1, np.abs(scenes))
    even = dict(frames=frames, visual=visual, scenes=scenes, beta=0.0, alpha=0.0, sinks=0, recent=0.0)
    row = np.zeros((1, 24))
    for least, n_keep, want in (
        (1, 5, [4, 5, 12, 13, 23]),  # room for two of each
        (3, 5, [4, 12, 13, 14, 23]),  # at least three, of the newest first
        (1, 11, [*range(4, 8), *range(12, 16), 21, 22, 23]),
    ):
        kept = weir.keep(row, row, n_keep, frame_rows=least, first=0.0, **even)
        expect_equal(kept, [want], "scenes share what room there is")
    kept = weir.keep(row, row, 4, frame_rows=4, first=0.25, **even)
    expect_equal(kept, [[4, 12, 13, 23]], "the oldest scene keeps one")
    attention = softmax_rows(4, 6, 30)
    expect(np.allclose(weir.scores(attention, 2, 4), snapkv.scores(attention, 2, 4) / 4), "SnapKV's votes, as a mean")
    expect(np.array_equal(weir.scores(attention, 2, 9), weir.scores(attention, 2, 6)), "no more rows than there are")


def picture_prompt(n_layers, prefix, n_image, question):
    """Views of a prompt of text, an image and text, from random attention of the question's rows."""
    n = prefix + n_image + question
    visual = (np.arange(n) >= prefix) & (np.arange(n) < prefix + n_image)
    views = []
    for _ in range(n_layers):
        attention = softmax_rows(4, question, n)
        scores = np.where(visual, a_vl.image_scores(attention), a_vl.text_scores(attention))
        views.append(
            dict(
                seq=list(range(n)),
                visual=visual.tolist(),
                pinned=[False] * n,
                scores=scores.tolist(),
                n_seen=n,
                n_seen_visual=n_image,
                attention=attention,
            )
        )
    return views


def left_of(view, kept):
    """The view of a layer after a selection."""
    return {**view, **{key: [view[key][s] for s in kept] for key in ("seq", "visual", "pinned", "scores")}}


def best_rows(view, slots, count):
    """The `count` of `slots` that the last row attends to most."""
    last = view["attention"][:, -1].mean(axis=0)
    return set(sorted(slots, key=lambda slot: last[slot])[-count:] if count else [])


def check_a_vl():
    off = {"S": 1.0, "C": 1.0, "P": 1, "T": 1.0, "heavy": 0.5, "text_min": 0}
    for prefix, n_image, question in ((5, 40, 12), (3, 100, 30), (0, 17, 9)):
        views = picture_prompt(5, prefix, n_image, question)
        n = len(views[0]["seq"])
        image, text = set(range(prefix, prefix + n_image)), set(range(prefix + n_image, n))
        outside = set(range(n)) - image
        expect_equal(a_vl.after_prompt(views, off), [list(range(n))] * 5, "shares of 1 keep everything")
        expect_equal(a_vl.read(views[0], off), list(range(n)), "and read everything")
        for s, c in ((45, 30), (29, 29), (40, 7), (57, 10), (0, 0), (100, 58)):
            options = {**off, "S": s / 100, "C": c / 100}
            kept = a_vl.after_prompt(views, options)
            for view, slots in zip(views, kept):
                stored = best_rows(view, image, s * n_image // 100)
                expect_equal(slots, sorted(outside | stored), "floor(S N) by the last row, and all text")
                held = left_of(view, slots)
                core = {slots[slot] for slot in a_vl.read(held, options)}
                expect_equal(sorted(core - outside), sorted(best_rows(view, image, c * n_image // 100)), "the core")
                expect(outside <= core <= set(slots), "text and the core of what is stored")
            if 0 < s < 100:
                expect(kept[0] != kept[1], "layers rank for themselves")
        for p, s in ((90, 45), (30, 45), (50, 100)):
            both = a_vl.after_prompt(views, {**off, "S": s / 100, "P": p / 100})
            alone = a_vl.after_prompt(views, {**off, "S": s / 100})
            expect_equal(both[:2], alone[:2], "P begins behind the second layer")
            passed = best_rows(views[1], image, p * n_image // 100)
            for view, slots in zip(views[2:], both[2:]):
                want = best_rows(view, passed, min(p, s) * n_image // 100)
                expect_equal(sorted(set(slots) & image), sorted(want), "P before S")
        for t, heavy, least in ((50, 0.5, 0), (29, 0.7, 4), (10, 0.0, 3), (10, 1.0, 0), (0, 0.5, 2), (90, 0.5, 100)):
            options = {**off, "T": t / 100, "heavy": heavy, "text_min": least}
            budget = max((t * question + 50) // 100, least)
            for view, slots in zip(views, a_vl.after_prompt(views, options)):
                expect(set(range(prefix + n_image)) <= set(slots), "text before the image and the image stay")
                held = set(slots) & text
                expect_equal(len(held), min(budget, question), "text within its budget")
                n_recent = min(budget - common.round_half_up(heavy * budget), question)
                recent = set(common.newest(n, n_recent))
                expect(recent <= held, "the newest text stays")
                sums = view["attention"].sum(axis=1).mean(axis=0)
                rest = sorted(text - recent, key=lambda slot: sums[slot])
                expect_equal(sorted(held - recent), sorted(rest[len(rest) - len(held) + n_recent :]), "heavy hitters")
        options = {**off, "S": 0.45, "C": 0.3, "T": 0.5}
        stored = a_vl.after_prompt(views, options)
        for view, slots in zip(views, stored):
            expect_equal(a_vl.keep(view, len(slots), options), slots, "a pot with room for S and T keeps just these")
            inner = prefix + 30 * n_image // 100 + common.round_half_up(question / 2)
            kept = a_vl.keep(view, inner, options)
            expect(set(kept) <= set(slots) and len(kept) == inner, "a smaller one evicts what is stored, not read")
            core = best_rows(view, image, 30 * n_image // 100)
            expect_equal(sorted(set(kept) & image), sorted(core), "and keeps the core")
    for interval, want in ((3, "1001001"), (1, "1111111"), (0, "1111111"), (5, "1000010"), (100, "1000000")):
        steps = "".join(str(int(a_vl.reads_all(step, interval))) for step in range(7))
        expect_equal(steps, want, f"steps that read everything, K = {interval}")
    # The published shares of a LLaVA-1.5-7B cache: 576 image tokens and a tenth of text, used as the mean of a cycle.
    view = picture_prompt(1, 30, 576, 34)[0]
    for s, c, stored, used in ((0.4, 0.4, 46, 46), (0.4, 0.3, 46, 39), (0.45, 0.3, 50, 40)):
        options = {**off, "S": s, "C": c}
        slots = a_vl.after_prompt([view], options)[0]
        core = a_vl.read(left_of(view, slots), options)
        got = len(slots) / 6.4, sum(len(slots) if a_vl.reads_all(i, 3) else len(core) for i in range(3)) / 3 / 6.4
        expect(abs(got[0] - stored) < 0.6 and abs(got[1] - used) < 1.5, f"the paper's share of the cache: {got}")


def check_fastv():
    depth, n_image = 6, 50
    views = picture_prompt(depth, 4, n_image, 11)
    everything = list(range(len(views[0]["seq"])))
    image = set(range(4, 4 + n_image))
    for k in (1, 2, 3, depth, depth + 3):
        expect_equal(fastv.after_prompt(views, {"K": k, "R": 0.0}), [everything] * depth, "R = 0 is dense")
        for r in (25, 50, 55, 75, 90, 100):
            kept = fastv.after_prompt(views, {"K": k, "R": r / 100})
            expect_equal(kept[:k], [everything] * min(k, depth), "layers up to K keep everything")
            if k >= depth:
                continue
            n_kept = ((100 - r) * n_image + 50) // 100
            want = sorted(set(everything) - image | best_rows(views[k - 1], image, n_kept))
            expect_equal(kept[k:], [want] * (depth - k), "later layers keep what layer K's last row attends to")
    expect_equal(fastv.n_kept(0.55, 30), 14, "a half is rounded up")
    expect(np.array_equal(fastv.scores(views[0]["attention"]), views[0]["attention"][:, -1].mean(axis=0)), "scores")
    # The published compute of LLaVA-1.5-7B, K = 3, R = 50 %: 57 % of the operations of the layers.
    d, m, n, n_left = 4096, 11008, 640, 640 - 576 + fastv.n_kept(0.5, 576)
    one = [4 * x * d * d + 2 * x * x * d + 2 * x * d * m for x in (n, n_left)]
    share = (3 * one[0] + 29 * one[1]) / (32 * one[0])
    expect(abs(share - 0.57) < 0.03, f"the paper's share of the operations: {share}")


def view_of(slots, scores, case):
    n = len(slots["seq"])
    flags = {name: [slot in set(slots[name]) for slot in range(n)] for name in ("pinned", "visual")}
    counts = {name: case[name] for name in ("n_seen", "n_seen_visual")}
    return {"seq": slots["seq"], "scores": scores, **flags, **counts}


def check_view_golden():
    n_cases = 0
    for policy, reference in policies.all_of(ViewPolicy).items():
        for line in (GOLDEN / f"{policy}.jsonl").read_text().splitlines():
            case = json.loads(line)
            for step in case["rounds"]:
                view = view_of(step["slots"][0], step["scores"][0], step)
                kept = reference.keep(view, step["n_keep"], case["options"])
                expect_equal([kept], step["keep"], f"{policy} {case['name']}")
                expect_equal(len(kept), min(len(view["seq"]), step["n_keep"]), f"{policy} {case['name']}: size")
            n_cases += 1
        for i, line in enumerate((TESTS / "prompt_end" / f"{policy}.jsonl").read_text().splitlines()):
            case = json.loads(line)
            views = [view_of(slots, slots["scores"], case) for slots in case["layers"]]
            kept = reference.after_prompt(views, case["options"])
            expect_equal(kept, case["after_prompt"], f"{policy}, end of prompt {i}")
            if reference.READS:
                read = [reference.read(left_of(view, slots), case["options"]) for view, slots in zip(views, kept)]
                expect_equal(read, case["read"], f"{policy}, core at the end of prompt {i}")
            n_cases += 1
    return n_cases


def check_golden():
    n_cases = 0
    for policy, reference in replay.POLICIES.items():
        names = set()
        for line in (GOLDEN / f"{policy}.jsonl").read_text().splitlines():
            case = json.loads(line)
            names.add(case["name"])
            n_cases += 1
            what = case["name"]
            for real in (np.float32, np.float64):
                for step, (scores, keep) in zip(case["rounds"], replay.replay(case, real)):
                    expect_equal(keep, step["keep"], what)
                    if scores is not None:
                        for got, want in zip(scores, step["scores"]):
                            want = np.array([np.inf if x is None else x for x in want])
                            near = 2.0**-12 if "keys" in step or "values" in step else 1e-6
                            expect(np.allclose(got, want, rtol=1e-6, atol=near), f"{what}: scores")
            for step in case["rounds"]:
                slots, keep = replay.round_of(case, step).slots, step["keep"]
                lengths = [len(group["seq"]) for group in slots]
                expect_equal(len(keep), reference.n_groups(case), f"{what}: groups")
                if reference.SHARES_HEADS:
                    expect_equal(sum(map(len, keep)), min(sum(lengths), step["n_keep"] * len(keep)), what)
                else:
                    expect_equal([len(kept) for kept in keep], [min(n, step["n_keep"]) for n in lengths], what)
                for group, kept, n in zip(slots, keep, lengths):
                    expect(kept == sorted(set(kept)) and 0 <= kept[0] and kept[-1] < n, f"{what}: order")
                    expect(set(group["pinned"]) <= set(kept), f"{what}: pins")
                    expect(group["seq"] == sorted(set(group["seq"])), f"{what}: seq")
                if reference.LAYER_BUDGETS:
                    budget = reference.layer_budget(case["options"], lengths[0])
                    expect_equal(budget, step["n_keep"], f"{what}: layer budget")
        expect(len(names) >= 24, f"{policy} has only {len(names)} cases")
    return n_cases


def main():
    for check in (
        check_ties_and_pooling,
        check_window_and_sinks,
        check_inf_mllm,
        check_infinipot,
        check_sirllm,
        check_h2o,
        check_keyformer,
        check_snapkv,
        check_pyramid_and_heads,
        check_norms,
        check_infinipot_v,
        check_weir,
        check_a_vl,
        check_fastv,
    ):
        check()
        print(f"{check.__name__[6:]}: ok")
    print(f"golden: ok, {check_golden() + check_view_golden()} cases")


if __name__ == "__main__":
    main()
