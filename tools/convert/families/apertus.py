# SPDX-License-Identifier: Apache-2.0
"""Apertus: GGUF architecture `apertus`."""

from . import arcee, llama

GGUF_ARCH = "apertus"
HF_NAMES = ("ApertusForCausalLM",)

LAYER = {
    **{hf: name for hf, name in arcee.LAYER.items() if not hf.endswith("layernorm")},
    "attention_layernorm": "attn_norm",
    "feedforward_layernorm": "ffn_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say, act="xielu")
    for name in ("alpha_p", "alpha_n", "beta", "eps"):
        tensors = [f"model.layers.{i}.mlp.act_fn.{name}" for i in range(source.need("num_hidden_layers"))]
        writer.add_array(f"xielu.{name}", [float(source.tensor(tensor).reshape(-1)[0]) for tensor in tensors])


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER)
