# SPDX-License-Identifier: Apache-2.0
"""Phi-3, Phi-3.5, Phi-4-mini: GGUF architecture `phi3`."""

from . import llama

GGUF_ARCH = "phi3"
HF_NAMES = ("Phi3ForCausalLM",)

# Both formats fuse q, k and v into one tensor, and gate and up into another, in the same order.
LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say)
    if source.rope()[0] != "longrope":  # which writes the key itself
        writer.add_rope_scaling_orig_ctx_len(source.original_context(source.rope()[1]))
    # 0 says "none" to readers that would assume a window.
    window = source.get("sliding_window") or 0
    writer.add_sliding_window(window if window < source.need("max_position_embeddings") else 0)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
