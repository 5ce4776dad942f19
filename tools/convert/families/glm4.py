# SPDX-License-Identifier: Apache-2.0
"""GLM-4-0414 and GLM-Z1: GGUF architecture `glm4`. Both formats rotate interleaved pairs, so no row moves."""

from . import llama

GGUF_ARCH = "glm4"
HF_NAMES = ("Glm4ForCausalLM",)

LAYER = {
    **llama.LAYER,
    "post_self_attn_layernorm": "post_attention_norm",
    "post_mlp_layernorm": "post_ffw_norm",
    "mlp.gate_up_proj": "ffn_up",
}
for fused in ("mlp.gate_proj", "mlp.up_proj"):
    del LAYER[fused]


def metadata(source, writer, say):
    source.config.setdefault("partial_rotary_factor", 0.5)
    llama.decoder_metadata(source, writer, say)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
