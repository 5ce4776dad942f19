# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: keys, and the tensors of one layer's experts stacked as GGUF has them."""

from typing import NamedTuple

import gguf
import numpy as np

# GGUF names of an expert's matrices, in the order in which the functions below take them.
NAMES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


class Mxfp4(NamedTuple):
    """Matrices that are already encoded: bytes [..., n_out, bytes of a row]."""

    bytes: np.ndarray


def count(source):
    for key in ("num_local_experts", "n_routed_experts", "moe_num_experts"):
        if source.get(key):
            return source.get(key)
    return source.need("num_experts")


def write_keys(source, writer, n_ff):
    writer.add_expert_count(count(source))
    writer.add_expert_used_count(source.need("num_experts_per_tok"))
    writer.add_expert_feed_forward_length(n_ff)


def write_sigmoid(source, writer, n_dense="first_k_dense_replace"):
    """Keys of a model like DeepSeek-V3. `n_dense`: the key of how many first layers have no experts."""
    write_keys(source, writer, source.need("moe_intermediate_size"))
    writer.add_expert_shared_count(source.need("n_shared_experts"))
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    writer.add_expert_weights_norm(bool(source.get("norm_topk_prob", False)))
    writer.add_expert_weights_scale(float(source.get("routed_scaling_factor", 1.0)))
    if n_dense is not None:
        writer.add_leading_dense_block_count(source.get(n_dense, 0))
    if source.get("n_group", 1) > 1:
        writer.add_expert_group_count(source.need("n_group"))
        writer.add_expert_group_used_count(source.need("topk_group"))


def behind_dense(source, n_dense, shared="shared_experts", bias="gate.e_score_correction_bias"):
    """The feed-forward parts of a model whose first n_dense layers have no experts. `shared`, `bias`: modules of the
    shared expert and of the bias of the choice, in `mlp`; the former may be None, the latter be missing."""
    parts = {name: f"{name}_proj" for name in ("gate", "up", "down")}
    for i in range(source.need("num_hidden_layers")):
        at, blk = f"model.layers.{i}.mlp.", f"blk.{i}."
        for name, module in parts.items():
            if i < n_dense:
                yield f"{blk}ffn_{name}.weight", source.tensor(f"{at}{module}.weight")
            elif shared is not None:
                yield f"{blk}ffn_{name}_shexp.weight", source.tensor(f"{at}{shared}.{module}.weight")
        if i < n_dense:
            continue
        yield from separate(source, i, "mlp", "gate", parts.values())
        if source.has(at + bias):
            yield blk + "exp_probs_b.bias", source.tensor(at + bias).reshape(-1)


def separate(source, layer, block, router, modules):
    """Of experts saved one by one: BLOCK.experts.E.MODULE, the modules being gate, up and down."""
    at = f"model.layers.{layer}.{block}"
    yield f"blk.{layer}.ffn_gate_inp.weight", source.tensor(f"{at}.{router}.weight")
    for name, module in zip(NAMES, modules):
        yield (
            f"blk.{layer}.{name}.weight",
            np.stack([source.tensor(f"{at}.experts.{e}.{module}.weight") for e in range(count(source))]),
        )
