# SPDX-License-Identifier: Apache-2.0
"""Gemma 3n, language model: GGUF architecture `gemma3n`. Encoders of pictures and sound are omitted."""

from statistics import NormalDist

import numpy as np

from ..source import ConvertError
from . import gemma4

GGUF_ARCH = "gemma3n"
HF_NAMES = ("Gemma3nForCausalLM", "Gemma3nForConditionalGeneration")

prepare = gemma4.prepare

LAYER = {
    **gemma4.LAYER,
    **gemma4.OWN_LAYER,
    "altup.correction_coefs": "altup_correct_coef",
    "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router",
    "altup.router_norm": "altup_router_norm",
    "laurel.linear_left": "laurel_l",
    "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
}
STACKS = {"altup_projections": "altup_proj", "altup_unembed_projections": "altup_unembd_proj"}


def metadata(source, writer, say):
    for key, value in (
        ("hidden_activation", "gelu_pytorch_tanh"),
        ("attention_bias", False),
        ("altup_correct_scale", True),
    ):
        if source.get(key, value) != value:
            raise ConvertError(f"config.json: {key} {source.get(key)}; this architecture is defined with {value}")
    n_layers, head_dim = source.need("num_hidden_layers"), source.get("head_dim", 256)
    windows, sparsity = gemma4.is_window(source), source.need("activation_sparsity_pattern")
    if len(sparsity) != n_layers or len(windows) != n_layers:
        raise ConvertError(f"config.json: layer_types or activation_sparsity_pattern is not for {n_layers} layers")
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(source.need("intermediate_size"))
    writer.add_head_count(source.need("num_attention_heads"))
    writer.add_head_count_kv(source.need("num_key_value_heads"))
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(source.get("rms_norm_eps", 1e-6))
    writer.add_vocab_size(source.need("vocab_size"))
    writer.add_sliding_window(source.need("sliding_window"))
    writer.add_sliding_window_pattern(windows)
    writer.add_shared_kv_layers(source.get("num_kv_shared_layers", 15))
    writer.add_embedding_length_per_layer_input(source.get("hidden_size_per_layer_input", 256))
    writer.add_altup_active_idx(source.get("altup_active_idx", 0))
    writer.add_altup_num_inputs(source.get("altup_num_inputs", 4))
    # How many deviations from the mean leave this share below them.
    scales = [float(np.float32(NormalDist().inv_cdf(share))) if share > 0 else -np.inf for share in sparsity]
    writer.add_activation_sparsity_scale(scales)
    full = gemma4.rope_of(source, "full_attention", "default")
    window = gemma4.rope_of(source, "sliding_attention", "default")
    writer.add_rope_freq_base(float(full.get("rope_theta") or source.get("rope_theta", 1000000.0)))
    base = float(window.get("rope_theta") or source.get("rope_local_base_freq", 10000.0))
    if base != 10000.0:  # assumed by every reader
        writer.add_rope_freq_base_swa(base)
    # llama.cpp caps at 30 where the key is missing.
    writer.add_final_logit_softcapping(float(source.get("final_logit_softcapping", 30.0)))


def table(source, name, n_rows):
    """A table of embeddings with a row for every token; those beyond its own have the row of token 0."""
    rows = source.tensor(name)
    return np.concatenate([rows, np.repeat(rows[:1], n_rows - len(rows), axis=0)]) if len(rows) < n_rows else rows


def tensors(source):
    n_layers, n_vocab = source.need("num_hidden_layers"), source.need("vocab_size")
    n_stored = n_layers - source.get("num_kv_shared_layers", 15)
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "output_norm.weight", source.tensor("model.norm.weight")
    if source.get("tie_word_embeddings", True):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    for hf, name in gemma4.OWN.items():
        yield f"{name}.weight", table(source, f"model.{hf}.weight", n_vocab if "token_embd" in name else 0)
    for hf, name in STACKS.items():
        others = range(source.get("altup_num_inputs", 4) - 1)
        yield f"{name}.weight", np.stack([source.tensor(f"model.{hf}.{i}.weight") for i in others])
    for i in range(n_layers):
        layer = f"model.layers.{i}"
        for hf, name in LAYER.items():
            yield f"blk.{i}.{name}.weight", source.tensor(f"{layer}.{hf}.weight")
        yield f"blk.{i}.altup_correct_scale.weight", source.tensor(f"{layer}.altup.correct_output_scale")
        for hf, name in gemma4.HEADS.items():
            # Nothing reads those of the last layers, which newer folders lack; llama.cpp asks for them.
            where = f"{layer}.{hf}.weight"
            like = source.shape(f"model.layers.0.{hf}.weight")
            lacks = i >= n_stored and not source.has(where)
            yield f"blk.{i}.{name}.weight", np.zeros(like, np.float32) if lacks else source.tensor(where)
