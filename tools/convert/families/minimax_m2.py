# SPDX-License-Identifier: Apache-2.0
"""MiniMax-M2: GGUF architecture `minimax-m2`."""

import gguf

from .. import experts
from . import llama, qwen3

GGUF_ARCH = "minimax-m2"
HF_NAMES = ("MiniMaxM2ForCausalLM",)


def metadata(source, writer, say):
    if source.get("rotary_dim"):
        source.config.setdefault("partial_rotary_factor", source.need("rotary_dim") / source.head_dim())
    llama.decoder_metadata(source, writer, say)
    experts.write_keys(source, writer, source.need("intermediate_size"))
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def tensors(source):
    yield from llama.decoder_tensors(source, llama.without_mlp(qwen3.LAYER))
    for i in range(source.need("num_hidden_layers")):
        yield from experts.separate(source, i, "block_sparse_moe", "gate", ("w1", "w3", "w2"))
        bias = f"model.layers.{i}.block_sparse_moe.e_score_correction_bias"
        yield f"blk.{i}.exp_probs_b.bias", source.tensor(bias)
