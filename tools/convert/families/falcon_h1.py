# SPDX-License-Identifier: Apache-2.0
"""Falcon-H1: GGUF architecture `falcon-h1`. Its multipliers become part of the weights that they multiply."""

import numpy as np

from .. import mamba2
from ..source import ConvertError
from . import llama

GGUF_ARCH = "falcon-h1"
HF_NAMES = ("FalconH1ForCausalLM",)

LAYER = {
    "input_layernorm": "attn_norm",
    "pre_ff_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "feed_forward.gate_proj": "ffn_gate",
    "feed_forward.up_proj": "ffn_up",
    "feed_forward.down_proj": "ffn_down",
}


def inner(source):
    return source.get("mamba_d_ssm") or int(source.need("mamba_expand") * source.need("hidden_size"))


def metadata(source, writer, say):
    if list(source.get("time_step_limit", [0.0, float("inf")])) != [0.0, float("inf")]:
        raise ConvertError("config.json: time_step_limit is not converted for this architecture")
    for key in ("attention_bias", "mlp_bias", "projectors_bias", "mamba_proj_bias"):
        if source.get(key, False):
            raise ConvertError(f"config.json: {key} is not converted for this architecture")
    if source.get("mamba_rms_norm", False) and source.get("mamba_norm_before_gate", True):
        raise ConvertError("config.json: mamba_norm_before_gate is not converted for this architecture")
    if inner(source) != source.need("mamba_n_heads") * source.need("mamba_d_head"):
        raise ConvertError("config.json: mamba_d_ssm is not mamba_n_heads x mamba_d_head")
    llama.decoder_metadata(source, writer, say)
    mamba2.write_keys(
        writer,
        source.need("mamba_d_conv"),
        source.need("mamba_d_state"),
        source.need("mamba_n_groups"),
        source.need("mamba_n_heads"),
        source.need("mamba_d_head"),
    )


def factors(source):
    """By GGUF module: what its weights are multiplied by."""
    get = lambda key: float(source.get(key, 1.0))
    gate, down = source.get("mlp_multipliers", [1.0, 1.0])
    return {
        "attn_q": get("attention_in_multiplier"),
        "attn_k": get("attention_in_multiplier") * get("key_multiplier"),
        "attn_v": get("attention_in_multiplier"),
        "attn_output": get("attention_out_multiplier"),
        "ffn_gate": gate,
        "ffn_down": down,
    }


def in_factors(source):
    """[rows of in_proj]: those of z, x, b, c and dt."""
    bc = source.need("mamba_n_groups") * source.need("mamba_d_state")
    sizes = (inner(source), inner(source), bc, bc, source.need("mamba_n_heads"))
    parts = [np.full(n, f) for n, f in zip(sizes, source.get("ssm_multipliers", [1.0] * 5))]
    return np.concatenate(parts).astype(np.float32)[:, None] * np.float32(source.get("ssm_in_multiplier", 1.0))


def tensors(source):
    by_module = factors(source)
    table = source.tensor("model.embed_tokens.weight")
    yield "token_embd.weight", table * np.float32(source.get("embedding_multiplier", 1.0))
    yield "output_norm.weight", source.tensor("model.final_layernorm.weight")
    head = table if source.get("tie_word_embeddings", False) else source.tensor("lm_head.weight")
    source.ignore("lm_head.weight")
    yield "output.weight", head * np.float32(source.get("lm_head_multiplier", 1.0))
    for i in range(source.need("num_hidden_layers")):
        for hf, name in LAYER.items():
            array = source.tensor(f"model.layers.{i}.{hf}.weight")
            suffix = "" if name == "ffn_norm" else ".weight"  # as llama.cpp's files have it
            yield f"blk.{i}.{name}{suffix}", array * np.float32(by_module.get(name, 1.0))
        for name, array in mamba2.tensors(source, f"model.layers.{i}.mamba", f"blk.{i}", source.need("mamba_n_groups")):
            if name.endswith("ssm_in.weight"):
                array = array * in_factors(source)
            elif name.endswith("ssm_out.weight"):
                array = array * np.float32(source.get("ssm_out_multiplier", 1.0))
            yield name, array
