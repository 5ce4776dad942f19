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
    if source.get("clip_qkv"):
        raise ConvertError("config.json: clip_qkv is not converted for this architecture")
    llama.decoder_metadata(source, writer, say)
    experts.write_keys(source, writer, source.need("intermediate_size"))


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
    for i in range(source.need("num_hidden_layers")):
        yield from experts.separate(source, i, "mlp", "gate", ("gate_proj", "up_proj", "down_proj"))
