# SPDX-License-Identifier: Apache-2.0
"""Qwen3 with experts (30B-A3B, 235B-A22B): GGUF architecture `qwen3moe`."""

from .. import experts
from ..source import ConvertError
from . import llama, qwen3

GGUF_ARCH = "qwen3moe"
HF_NAMES = ("Qwen3MoeForCausalLM",)

LAYER = llama.without_mlp(qwen3.LAYER)


def metadata(source, writer, say):
    if source.get("decoder_sparse_step", 1) != 1 or source.get("mlp_only_layers", []):
        raise ConvertError("config.json: layers without experts have no GGUF form for qwen3moe")
    if not source.get("norm_topk_prob", False):
        raise ConvertError("config.json: norm_topk_prob=false has no GGUF form for qwen3moe")
    qwen3.metadata(source, writer, say)
    experts.write_keys(source, writer, source.need("moe_intermediate_size"))


def decoder(source):
    """All but the experts."""
    return llama.decoder_tensors(source, LAYER)


def tensors(source):
    yield from decoder(source)
    for i in range(source.need("num_hidden_layers")):
        yield from experts.separate(source, i, "mlp", "gate", ("gate_proj", "up_proj", "down_proj"))
