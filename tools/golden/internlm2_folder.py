# SPDX-License-Identifier: Apache-2.0
"""A model folder as InternLM2's repository lays it out, from transformers' Llama, which computes the same thing: its
query, key and value layers are fused by KV head, its gate is named w1."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

BLOCK = {
    "input_layernorm": "attention_norm",
    "self_attn.o_proj": "attention.wo",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "feed_forward.w1",
    "mlp.up_proj": "feed_forward.w3",
    "mlp.down_proj": "feed_forward.w2",
}


def save(model, folder):
    have, c = model.state_dict(), model.config
    out = {
        "model.tok_embeddings.weight": have["model.embed_tokens.weight"],
        "model.norm.weight": have["model.norm.weight"],
        "output.weight": have["lm_head.weight"],
    }
    for i in range(c.num_hidden_layers):
        layer = f"model.layers.{i}."
        rows = (have[f"{layer}self_attn.{part}_proj.weight"] for part in "qkv")
        qkv = torch.cat([r.reshape(c.num_key_value_heads, -1, c.head_dim, c.hidden_size) for r in rows], dim=1)
        out[f"{layer}attention.wqkv.weight"] = qkv.reshape(-1, c.hidden_size)
        out.update({f"{layer}{name}.weight": have[f"{layer}{hf}.weight"] for hf, name in BLOCK.items()})
    save_file({name: value.detach().float().contiguous() for name, value in out.items()}, f"{folder}/model.safetensors")
    keys = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "rms_norm_eps",
        "max_position_embeddings",
    )
    config = {key: getattr(c, key) for key in keys}
    config.update(architectures=["InternLM2ForCausalLM"], rope_theta=10000.0, bias=False, tie_word_embeddings=False)
    (Path(folder) / "config.json").write_text(json.dumps(config))
