# SPDX-License-Identifier: Apache-2.0
"""ERNIE 4.5 with experts: GGUF architecture `ernie4_5-moe`. Both formats rotate interleaved pairs, so no row moves."""

from .. import experts
from ..source import ConvertError
from . import llama

GGUF_ARCH = "ernie4_5-moe"
HF_NAMES = ("Ernie4_5_MoeForCausalLM",)


def metadata(source, writer, say):
    n_layers, n_shared = source.need("num_hidden_layers"), source.get("moe_num_shared_experts", 0)
    if source.get("moe_layer_end_index", -1) not in (-1, n_layers - 1) or source.get("use_bias", False):
        raise ConvertError("config.json: moe_layer_end_index before the last layer and use_bias are not converted")
    llama.decoder_metadata(source, writer, say)
    writer.add_expert_count(source.need("moe_num_experts"))
    writer.add_expert_used_count(source.need("moe_k"))
    writer.add_expert_feed_forward_length(source.need("moe_intermediate_size"))
    writer.add_expert_shared_count(n_shared)
    writer.add_expert_shared_feed_forward_length(n_shared * source.need("moe_intermediate_size"))
    writer.add_interleave_moe_layer_step(source.get("moe_layer_interval", 1))
    writer.add_leading_dense_block_count(source.get("moe_layer_start_index", 1))


def tensors(source):
    yield from llama.decoder_tensors(source, llama.without_mlp(llama.LAYER), tied=True)
    shared = "shared_experts" if source.get("moe_num_shared_experts", 0) else None
    bias = "moe_statics.e_score_correction_bias"
    yield from experts.behind_dense(source, source.get("moe_layer_start_index", 1), shared=shared, bias=bias)
