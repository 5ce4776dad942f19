# SPDX-License-Identifier: Apache-2.0
"""OLMo 2 and Olmo 3: GGUF architecture `olmo2`."""

from . import llama

GGUF_ARCH = "olmo2"
HF_NAMES = ("Olmo2ForCausalLM", "Olmo3ForCausalLM")

LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "post_attention_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say)
    if source.hf_name == "Olmo3ForCausalLM":
        llama.window_metadata(source, writer, every=4)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
