# SPDX-License-Identifier: Apache-2.0
"""Qwen1.5 and Qwen2 with experts: GGUF architecture `qwen2moe`."""

from .. import experts
from ..source import ConvertError
from . import llama

GGUF_ARCH = "qwen2moe"
HF_NAMES = ("Qwen2MoeForCausalLM",)


def metadata(source, writer, say):
    if source.get("use_sliding_window", False):
        raise ConvertError("config.json: use_sliding_window is not converted for this architecture")
    if source.get("decoder_sparse_step", 1) != 1 or source.get("mlp_only_layers", []) or source.get("norm_topk_prob"):
        raise ConvertError("config.json: layers without experts, or norm_topk_prob, have no GGUF form for qwen2moe")
    llama.decoder_metadata(source, writer, say)
    experts.write_keys(source, writer, source.need("moe_intermediate_size"))
    writer.add_expert_shared_feed_forward_length(source.need("shared_expert_intermediate_size"))


def tensors(source):
    yield from llama.decoder_tensors(source, llama.without_mlp(llama.LAYER))
    yield from experts.behind_dense(source, 0, shared="shared_expert")
    for i in range(source.need("num_hidden_layers")):
        gate = source.tensor(f"model.layers.{i}.mlp.shared_expert_gate.weight")
        yield f"blk.{i}.ffn_gate_inp_shexp.weight", gate.reshape(-1)
