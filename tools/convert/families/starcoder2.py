# SPDX-License-Identifier: Apache-2.0
"""StarCoder2: GGUF architecture `starcoder2`."""

from . import llama

GGUF_ARCH = "starcoder2"
HF_NAMES = ("Starcoder2ForCausalLM",)

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say, act="gelu_pytorch_tanh", eps="norm_epsilon")
    window = source.get("sliding_window")
    if window and window < source.need("max_position_embeddings"):
        writer.add_sliding_window(window)
        say(f"sliding_window {window} is in the file; llama.cpp ignores it and is exact up to that many tokens")


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER, tied=True)
