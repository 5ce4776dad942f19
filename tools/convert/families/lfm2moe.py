# SPDX-License-Identifier: Apache-2.0
"""LFM2 with experts: GGUF architecture `lfm2moe`."""

import gguf

from .. import experts
from ..source import ConvertError
from . import lfm2

GGUF_ARCH = "lfm2moe"
HF_NAMES = ("Lfm2MoeForCausalLM",)


def metadata(source, writer, say):
    if not source.get("norm_topk_prob", True) or source.get("routed_scaling_factor", 1.0) != 1.0:
        raise ConvertError("config.json: norm_topk_prob=false and routed_scaling_factor have no GGUF form for lfm2moe")
    lfm2.metadata(source, writer, say)
    experts.write_keys(source, writer, source.need("moe_intermediate_size"))
    writer.add_leading_dense_block_count(source.need("num_dense_layers"))
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def tensors(source):
    n_dense = source.need("num_dense_layers")
    yield from lfm2.decoder(source, n_dense)
    for i in range(n_dense, source.need("num_hidden_layers")):
        yield from experts.separate(source, i, "feed_forward", "gate", ("w1", "w3", "w2"))
        bias = f"model.layers.{i}.feed_forward.expert_bias"
        if source.has(bias):
            yield f"blk.{i}.exp_probs_b.bias", source.tensor(bias)
