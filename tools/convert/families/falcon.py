# SPDX-License-Identifier: Apache-2.0
"""Falcon, the first: GGUF architecture `falcon`."""

import numpy as np

from ..source import ConvertError
from . import llama

GGUF_ARCH = "falcon"
HF_NAMES = ("FalconForCausalLM", "RWForCausalLM")

LAYER = {
    "input_layernorm": "attn_norm",
    "self_attention.query_key_value": "attn_qkv",
    "self_attention.dense": "attn_output",
    "mlp.dense_h_to_4h": "ffn_up",
    "mlp.dense_4h_to_h": "ffn_down",
}
OLD_KEYS = {
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_head_kv": "num_kv_heads",
    "ffn_hidden_size": "intermediate_size",
    "activation": "hidden_act",
}


def prepare(source, mmproj):
    config = source.config
    for old, key in OLD_KEYS.items():
        if config.get(old) is not None:
            config.setdefault(key, config[old])
    source.rename((("transformer.word_embeddings.", "model.embed_tokens."), ("transformer.ln_f.", "model.norm.")))
    source.rename((("transformer.h.", "model.layers."),))
    # Without new_decoder_architecture, heads share one pair or have their own, whatever num_kv_heads says.
    heads = source.need("num_attention_heads")
    if not config.get("new_decoder_architecture"):
        config["num_kv_heads"] = 1 if config.get("multi_query", True) else heads
    config["num_key_value_heads"] = config.get("num_kv_heads") or heads
    config.setdefault("intermediate_size", 4 * source.need("hidden_size"))
    config.setdefault("max_position_embeddings", 2048)


def metadata(source, writer, say):
    for key, value in (("alibi", False), ("parallel_attn", True), ("bias", False)):
        if source.get(key, value) != value:
            raise ConvertError(f"config.json: {key} {source.get(key)}; this architecture is converted with {value}")
    if source.has("model.layers.0.ln_mlp.weight"):
        raise ConvertError("a norm for each half of a layer (ln_attn, ln_mlp) is not converted for this architecture")
    llama.decoder_metadata(source, writer, say, act="gelu", eps="layer_norm_epsilon")
    writer.add_tensor_data_layout("jploski")  # how llama.cpp names the order of attn_qkv's rows


def tensors(source):
    heads, kv_heads = source.need("num_attention_heads"), source.need("num_key_value_heads")

    def fix(name, rows):
        """Groups of query heads with their key and value: all queries, all keys, all values."""
        if name != "attn_qkv":
            return rows
        groups = rows.reshape(kv_heads, heads // kv_heads + 2, -1, *rows.shape[1:])
        parts = (groups[:, :-2], groups[:, -2], groups[:, -1])
        return np.concatenate([part.reshape(-1, *rows.shape[1:]) for part in parts])

    yield from llama.decoder_tensors(source, LAYER, fix, tied=True)
