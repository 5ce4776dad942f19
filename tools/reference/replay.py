"""Runs the reference on a golden case as stored on disk (format: ../golden/policy.py)."""

import numpy as np

from .policies import (
    adakv,
    h2o,
    inf_mllm,
    infinipot,
    infinipot_v,
    keydiff,
    last_frames,
    lookm,
    pyramidkv,
    sirllm,
    snapkv,
    streaming_llm,
    streaming_vlm,
    tova,
    value_norm,
    weir,
    window,
)

POLICIES = [
    "window",
    "streaming_llm",
    "h2o",
    "tova",
    "sirllm",
    "snapkv",
    "pyramidkv",
    "adakv",
    "inf_mllm",
    "infinipot",
    "value_norm",
    "keydiff",
    "weir",
    "streaming_vlm",
    "last_frames",
    "lookm",
    "infinipot_v",
]


def _array(row, dtype):
    return np.array([np.inf if x is None else x for x in row], dtype=dtype)


def n_groups(case):
    if case["policy"] in ("window", "streaming_llm", "sirllm", "tova", "streaming_vlm", "last_frames"):
        return 1
    if case["policy"] == "inf_mllm":
        return case["n_kv_heads"] if case["options"]["per_kv_head"] else 1
    return case["n_kv_heads"]


def groups(case, step):
    """The step's slots, spelled out for every group."""
    slots = step["slots"]
    return slots if len(slots) > 1 else slots * n_groups(case)


def novelty(case, step, dtype):
    """infinipot_v's second statistic: from raw keys where the step has them."""
    if "keys" not in step:
        return [_array(row, dtype) for row in step["novelty"]]
    slots = groups(case, step)
    return infinipot_v.novelty(
        np.array(step["keys"], dtype),
        [group["frame"] for group in slots],
        [group["row"] for group in slots],
        case["options"]["recent"],
    )


def statistic(case, step, before, dtype):
    """What the policy ranks, from the raw inputs of a step, or None where the step has no raw inputs.

    `before`: (step, scores, keep) of the round before, or None.
    """
    o, n_kv_heads = case["options"], case["n_kv_heads"]
    if case["policy"] == "sirllm":
        nll = _array(step["slots"][0]["nll"], dtype)
        if before is not None:
            survivors = sirllm.decayed(before[1][0][before[2][0]], o["decay"])
            nll[: len(survivors)] = survivors
        return [nll]
    if case["policy"] in ("value_norm", "infinipot_v") and "values" in step:
        return value_norm.scores(np.array(step["values"], dtype))
    if case["policy"] == "keydiff" and "keys" in step:
        return keydiff.scores(np.array(step["keys"], dtype))
    if "attention" not in step:
        return None
    attention = np.array(step["attention"], dtype)
    if case["policy"] in ("h2o", "lookm"):
        sums = None if before is None else [scores[keep] for scores, keep in zip(before[1], before[2])]
        return h2o.accumulate(sums, attention, n_kv_heads, o["reduce"])
    if case["policy"] == "tova":
        return tova.scores(attention)
    if case["policy"] in ("snapkv", "pyramidkv", "adakv"):
        return snapkv.scores(attention, n_kv_heads, o["window"], o["reduce"])
    if case["policy"] == "inf_mllm":
        return inf_mllm.scores(attention, o["recent"], n_kv_heads, o["per_kv_head"])
    if case["policy"] == "weir":
        return weir.scores(attention, n_kv_heads, o["rows"])
    return infinipot.scores(attention, n_kv_heads, o["rows"], o["reduce"])


def select(case, step, scores, dtype):
    """The keep-sets of one step, from the reduced statistic."""
    policy, o, n_keep = case["policy"], case["options"], step["n_keep"]
    slots = groups(case, step)
    n = len(slots[0]["seq"])
    pinned = []
    for group in slots:
        flags = np.zeros(len(group["seq"]), bool)
        flags[group["pinned"]] = True
        pinned.append(flags)
    if policy == "window":
        return window.keep(n, n_keep, pinned[0])
    if policy == "streaming_llm":
        return streaming_llm.keep(n, n_keep, pinned[0], o["sinks"])
    if policy == "streaming_vlm":
        return streaming_vlm.keep(
            n, n_keep, pinned[0], slots[0]["frame"], slots[0]["t"], o["sinks"], o["text"], o["seconds"]
        )
    if policy == "last_frames":
        return last_frames.keep(n, n_keep, pinned[0], slots[0]["frame"], o["frames"], o["text"])
    if policy == "lookm":
        return lookm.keep(scores, n_keep, pinned, [group["frame"] for group in slots], o["share"])
    if policy == "infinipot_v":
        return infinipot_v.keep(
            scores,
            novelty(case, step, dtype),
            n_keep,
            pinned,
            [group["frame"] for group in slots],
            o["alpha"],
            o["recent"],
            o["text"],
        )
    if policy == "h2o":
        counts = [group["queries"] for group in slots] if o["normalise"] == "count" else None
        return h2o.keep(scores, n_keep, pinned, o["recent"], counts)
    if policy == "tova":
        return tova.keep(scores, n_keep, pinned[0])
    if policy == "sirllm":
        return sirllm.keep(scores[0], n_keep, pinned[0], o["sinks"], o["recent"])
    if policy == "snapkv":
        return snapkv.keep(scores, n_keep, pinned, o["window"], o["kernel"], o["pooling"])
    if policy == "pyramidkv":
        return pyramidkv.keep(
            scores, o["capacity"], o["layer"], o["n_layers"], pinned, o["window"], o["kernel"], o["pooling"], o["beta"]
        )
    if policy == "adakv":
        return adakv.keep(
            scores,
            n_keep,
            pinned,
            [group["seq"] for group in slots],
            o["window"],
            o["kernel"],
            o["pooling"],
            o["floor"],
        )
    if policy == "inf_mllm":
        return inf_mllm.keep(scores, n_keep, pinned, o["recent"], o["b"])
    if policy == "infinipot":
        nll = [_array(group["nll"], dtype) for group in slots]
        return infinipot.keep(scores, nll, n_keep, pinned, o["alpha"], o["kernel"], o["pooling"])
    if policy == "weir":
        nll = [_array(group["nll"], dtype) for group in slots]
        return weir.keep(
            scores,
            nll,
            n_keep,
            pinned,
            o["sinks"],
            o["alpha"],
            o["z"],
            o["beta"],
            o["saddle"],
            o["kernel"],
            o["b"],
            o["recent"],
            o["frame_rows"],
            [group.get("frame") for group in slots] if "visual" in step else None,
            [_array(row, dtype) for row in step["visual"]] if "visual" in step else None,
        )
    module = {"value_norm": value_norm, "keydiff": keydiff}[policy]
    return module.keep(scores, n_keep, pinned, o["recent"])


def replay(case, dtype=np.float64):
    """[(scores or None, keep)] of every round, with state carried from round to round where the inputs are raw."""
    out, before = [], None
    for step in case["rounds"]:
        if before is not None:
            for old, keep, new in zip(groups(case, before[0]), before[2], groups(case, step)):
                survivors = [old["seq"][slot] for slot in keep]
                if new["seq"][: len(survivors)] != survivors:
                    raise ValueError(f"case {case['name']}: a round does not start with the survivors of the last one")
        scores = statistic(case, step, before, dtype)
        if scores is None and "scores" in step:
            scores = [_array(row, dtype) for row in step["scores"]]
        keep = select(case, step, scores, dtype)
        before = (step, scores, keep)
        out.append((scores, keep))
    return out
