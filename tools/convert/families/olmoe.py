# SPDX-License-Identifier: Apache-2.0
"""OLMoE: GGUF architecture `olmoe`."""

from .. import experts
from ..source import ConvertError
from . import llama, qwen3

GGUF_ARCH = "olmoe"
HF_NAMES = ("OlmoeForCausalLM",)

LAYER = llama.without_mlp(qwen3.LAYER)


def metadata(source, writer, say):
    if source.get("norm_topk_prob", False):
        raise ConvertError("config.json: norm_topk_prob=true has no GGUF form for olmoe")
    llama.decoder_metadata(source, writer, say)
    if source.get("clip_qkv"):
        writer.add_clamp_kqv(float(source.need("clip_qkv")))
        say("clip_qkv is in the file; llama.cpp's `olmoe` does not read it")
    experts.write_keys(source, writer, source.need("intermediate_size"))


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
    for i in range(source.need("num_hidden_layers")):
        yield from experts.separate(source, i, "mlp", "gate", ("gate_proj", "up_proj", "down_proj"))
