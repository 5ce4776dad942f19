# SPDX-License-Identifier: Apache-2.0
"""A model folder as Qwen's own repository lays it out (the first Qwen and Qwen-VL), from transformers' Qwen2, which
computes the same thing: its query, key and value layers are fused, its gate is named w2."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

BLOCK = {
    "input_layernorm": "ln_1",
    "self_attn.o_proj": "attn.c_proj",
    "post_attention_layernorm": "ln_2",
    "mlp.gate_proj": "mlp.w2",
    "mlp.up_proj": "mlp.w1",
    "mlp.down_proj": "mlp.c_proj",
}


def save(model, folder, **config):
    """`config`: entries of config.json besides the sizes; `visual_tensors`, if given, are saved too."""
    have, c = model.state_dict(), model.config
    out = {
        "transformer.wte.weight": have["model.embed_tokens.weight"],
        "transformer.ln_f.weight": have["model.norm.weight"],
        "lm_head.weight": have["lm_head.weight"],
    }
    for i in range(c.num_hidden_layers):
        layer, to = f"model.layers.{i}.", f"transformer.h.{i}."
        for kind in ("weight", "bias"):
            out[f"{to}attn.c_attn.{kind}"] = torch.cat([have[f"{layer}self_attn.{part}_proj.{kind}"] for part in "qkv"])
        out.update({f"{to}{name}.weight": have[f"{layer}{hf}.weight"] for hf, name in BLOCK.items()})
    out.update({f"transformer.visual.{name}": value for name, value in config.pop("visual_tensors", {}).items()})
    save_file({name: value.detach().float().contiguous() for name, value in out.items()}, f"{folder}/model.safetensors")
    (Path(folder) / "config.json").write_text(
        json.dumps(
            dict(
                architectures=["QWenLMHeadModel"],
                vocab_size=c.vocab_size,
                hidden_size=c.hidden_size,
                intermediate_size=2 * c.intermediate_size,
                num_hidden_layers=c.num_hidden_layers,
                num_attention_heads=c.num_attention_heads,
                kv_channels=c.hidden_size // c.num_attention_heads,
                layer_norm_epsilon=c.rms_norm_eps,
                max_position_embeddings=c.max_position_embeddings,
                tie_word_embeddings=False,
                **config,
            )
        )
    )
