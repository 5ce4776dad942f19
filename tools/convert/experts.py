# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: keys, and the tensors of one layer's experts stacked as GGUF has them."""

from typing import NamedTuple

import numpy as np

# GGUF names of an expert's matrices, in the order in which the functions below take them.
NAMES = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")


class Mxfp4(NamedTuple):
    """Matrices that are already encoded: bytes [..., n_out, bytes of a row]."""

    bytes: np.ndarray


def count(source):
    return source.get("num_local_experts") or source.need("num_experts")


def write_keys(source, writer, n_ff):
    writer.add_expert_count(count(source))
    writer.add_expert_used_count(source.need("num_experts_per_tok"))
    writer.add_expert_feed_forward_length(n_ff)


def separate(source, layer, block, router, modules):
    """Of experts saved one by one: BLOCK.experts.E.MODULE, the modules being gate, up and down."""
    at = f"model.layers.{layer}.{block}"
    yield f"blk.{layer}.ffn_gate_inp.weight", source.tensor(f"{at}.{router}.weight")
    for name, module in zip(NAMES, modules):
        yield (
            f"blk.{layer}.{name}.weight",
            np.stack([source.tensor(f"{at}.experts.{e}.{module}.weight") for e in range(count(source))]),
        )
