# SPDX-License-Identifier: Apache-2.0
"""Gemma 4: the language model to GGUF architecture `gemma4`; with --mmproj the vision encoder to llama.cpp's `mmproj`
file (architecture `clip`, projector `gemma4v`). The encoder of sound is omitted; mixtures of experts are not
converted."""

import numpy as np

from ..source import ConvertError
from . import gemma2

GGUF_ARCH = "gemma4"
HF_NAMES = ("Gemma4ForCausalLM", "Gemma4ForConditionalGeneration")

HEADS = {"self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.k_norm": "attn_k_norm"}
LAYER = {
    **{hf: name for hf, name in gemma2.LAYER.items() if hf not in HEADS},
    "self_attn.q_norm": "attn_q_norm",
}
# Tensors of per-layer embeddings, in each layer and outside.
OWN_LAYER = {
    "per_layer_input_gate": "inp_gate",
    "per_layer_projection": "proj",
    "post_per_layer_input_norm": "post_norm",
}
OWN = {
    "embed_tokens_per_layer": "per_layer_token_embd",
    "per_layer_model_projection": "per_layer_model_proj",
    "per_layer_projection_norm": "per_layer_proj_norm",
}

MMPROJ_ARCH = "clip"
# transformers' defaults for keys that the vision part of config.json may omit.
VISION_DEFAULTS = dict(
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=16,
    num_attention_heads=12,
    hidden_activation="gelu_pytorch_tanh",
    rms_norm_eps=1e-6,
    attention_bias=False,
    pooling_kernel_size=3,
    patch_size=16,
)
USUAL_SCALE, USUAL_ROWS, THETA, BICUBIC = 3, 280, 100.0, 3  # the first two are what a file without the keys means
VISION_NORMS = {
    "input_layernorm": "ln1",
    "post_attention_layernorm": "attn_post_norm",
    "pre_feedforward_layernorm": "ln2",
    "post_feedforward_layernorm": "ffn_post_norm",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
VISION_MATRICES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_out",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def prepare(source, mmproj):
    """Makes a folder with encoders look like the part that is being converted."""
    whole = source.whole_config = source.config
    text, vision = whole.get("text_config"), whole.get("vision_config")
    if mmproj and (text is None or vision is None):
        raise ConvertError("config.json: this model has no vision encoder")
    if text is None:
        return
    parts = ("vision_tower.", "embed_vision.", "audio_tower.", "embed_audio.")
    source.rename((("model.language_model.", "model."), *((f"model.{part}", part) for part in parts)))
    if mmproj:
        source.config = {**VISION_DEFAULTS, **vision}
        source.ignore_prefix("model.", "lm_head.", "audio_tower.", "embed_audio.")
    else:
        source.config = dict(text)
        source.ignore_prefix(*parts, "lm_head.")


def is_window(source):
    return [kind == "sliding_attention" for kind in source.need("layer_types")]


def one(name, values):
    if len(set(values)) > 1:
        raise ConvertError(f"config.json: layers of one kind with {name} {sorted(set(values))}")
    return values[0] if values else None


def heads(source, window):
    """Head size and KV heads of the layers of a kind."""
    own = source.get("per_layer_config", {})
    size, n_kv = source.need("head_dim"), source.need("num_key_value_heads")
    if not own and not window:
        size = source.get("global_head_dim", 512)
        if source.get("attention_k_eq_v", False):
            n_kv = source.get("num_global_key_value_heads", n_kv)
    layers = [own.get(str(i), {}) for i, kind in enumerate(is_window(source)) if kind == window]
    return (
        one("head_dim", [layer.get("head_dim", size) for layer in layers]) or size,
        one("num_key_value_heads", [layer.get("num_key_value_heads", n_kv) for layer in layers]) or n_kv,
    )


def rope_of(source, kind, expected):
    params = (source.get("rope_parameters") or {}).get(kind, {})
    if params.get("rope_type", expected) not in ("default", expected) or params.get("factor", 1.0) != 1.0:
        raise ConvertError(f"config.json: RoPE of {kind} is {params}, which is not converted")
    return params


def metadata(source, writer, say):
    if source.get("enable_moe_block", False):
        raise ConvertError("config.json: enable_moe_block; mixtures of experts are not converted for this architecture")
    for key, value in (("hidden_activation", "gelu_pytorch_tanh"), ("attention_bias", False)):
        if source.get(key, value) != value:
            raise ConvertError(f"config.json: {key} {source.get(key)}; this architecture is defined with {value}")
    if source.get("use_bidirectional_attention") == "all":
        raise ConvertError("config.json: attention in both directions is not converted")
    windows, n_layers = is_window(source), source.need("num_hidden_layers")
    n_shared, n_ff = source.get("num_kv_shared_layers", 0), source.need("intermediate_size")
    (full_size, full_kv), (window_size, window_kv) = heads(source, False), heads(source, True)
    writer.add_context_length(source.need("max_position_embeddings"))
    writer.add_embedding_length(source.need("hidden_size"))
    writer.add_block_count(n_layers)
    if source.get("use_double_wide_mlp", False):
        writer.add_feed_forward_length([n_ff if i < n_layers - n_shared else 2 * n_ff for i in range(n_layers)])
    else:
        writer.add_feed_forward_length(n_ff)
    writer.add_head_count(source.need("num_attention_heads"))
    if full_kv == window_kv:
        writer.add_head_count_kv(full_kv)
    else:
        writer.add_head_count_kv([window_kv if window else full_kv for window in windows])
    writer.add_key_length(full_size)
    writer.add_value_length(full_size)
    writer.add_key_length_swa(window_size)
    writer.add_value_length_swa(window_size)
    writer.add_layer_norm_rms_eps(source.need("rms_norm_eps"))
    writer.add_vocab_size(source.need("vocab_size"))
    writer.add_sliding_window(source.need("sliding_window"))
    writer.add_sliding_window_pattern(windows)
    writer.add_shared_kv_layers(n_shared)
    writer.add_embedding_length_per_layer_input(source.get("hidden_size_per_layer_input", 0))
    writer.add_rope_dimension_count(full_size)
    writer.add_rope_freq_base(float(rope_of(source, "full_attention", "proportional").get("rope_theta", 1000000.0)))
    window_rope = rope_of(source, "sliding_attention", "default")
    writer.add_rope_dimension_count_swa(int(window_size * window_rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base_swa(float(window_rope.get("rope_theta", 10000.0)))
    # llama.cpp caps at 30 where the key is missing.
    writer.add_final_logit_softcapping(float(source.get("final_logit_softcapping", 0.0)))
    # Rows of a picture see each other in the large models, which have no per-layer embeddings; what differs is written.
    two_way = source.get("use_bidirectional_attention") == "vision"
    if source.whole_config.get("vision_config") and two_way == (source.get("hidden_size_per_layer_input", 0) > 0):
        writer.add_bool("weir.two_way_pictures", two_way)


def tensors(source):
    windows, n_layers = is_window(source), source.need("num_hidden_layers")
    n_stored = n_layers - source.get("num_kv_shared_layers", 0)
    has_own = source.get("hidden_size_per_layer_input", 0) > 0
    yield "token_embd.weight", source.tensor("model.embed_tokens.weight")
    yield "output_norm.weight", source.tensor("model.norm.weight")
    if source.get("tie_word_embeddings", True):
        source.ignore("lm_head.weight")
    else:
        yield "output.weight", source.tensor("lm_head.weight")
    for hf, name in OWN.items() if has_own else ():
        yield f"{name}.weight", source.tensor(f"model.{hf}.weight")
    # The part of each head that is rotated; the rest has frequencies of zero.
    params, half = rope_of(source, "full_attention", "proportional"), heads(source, False)[0] // 2
    n_rotated = int(params.get("partial_rotary_factor", 1.0) * 2 * half // 2)
    yield "rope_freqs.weight", np.where(np.arange(half) < n_rotated, 1.0, 1e30).astype(np.float32)
    for i in range(n_layers):
        layer_map = dict(LAYER)
        if i < n_stored:
            layer_map.update(HEADS)
            if source.get("attention_k_eq_v", False) and not windows[i]:
                del layer_map["self_attn.v_proj"]
        if has_own:
            layer_map.update(OWN_LAYER)
        for hf, name in layer_map.items():
            yield f"blk.{i}.{name}.weight", source.tensor(f"model.layers.{i}.{hf}.weight")
        scale = f"model.layers.{i}.layer_scalar"
        if source.has(scale):
            yield f"blk.{i}.layer_output_scale.weight", source.tensor(scale).reshape(1)
        if i >= n_stored:  # nothing reads them
            source.ignore_prefix(*(f"model.layers.{i}.{hf}." for hf in HEADS))


def mmproj_metadata(source, writer, say):
    processor = source.optional_json("preprocessor_config.json")
    processor = processor or source.optional_json("processor_config.json").get("image_processor", {})
    patch, scale = source.need("patch_size"), source.need("pooling_kernel_size")
    n_heads, width = source.need("num_attention_heads"), source.need("hidden_size")
    rope = source.get("rope_parameters") or {}
    shape = source.get("num_key_value_heads", n_heads), source.get("head_dim", 64) * n_heads
    if (
        source.need("hidden_activation") != "gelu_pytorch_tanh"
        or source.get("attention_bias")
        or shape != (n_heads, width)
    ):
        raise ConvertError(
            f"config.json: hidden_activation {source.need('hidden_activation')}, attention_bias "
            f"{source.get('attention_bias')}, KV heads and their width {shape}; this encoder is defined with "
            f"gelu_pytorch_tanh, no biases and {(n_heads, width)}"
        )
    if rope.get("rope_theta", THETA) != THETA or rope.get("rope_type", "axial") not in ("axial", "default"):
        raise ConvertError(f"config.json: rope_parameters {rope}; this encoder is defined with a base of {THETA:g}")
    asked = processor.get("patch_size", patch), processor.get("pooling_kernel_size", scale)
    if asked != (patch, scale) or processor.get("resample", BICUBIC) != BICUBIC:
        raise ConvertError(
            f"preprocessor_config.json: patch_size and pooling_kernel_size {asked}, resample "
            f"{processor.get('resample')}; this encoder is defined with bicubic pictures and {(patch, scale)}"
        )
    normalised = processor.get("do_normalize", False)
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("gemma4v")
    writer.add_vision_use_gelu(True)
    writer.add_vision_projection_dim(source.shape("embed_vision.embedding_projection.weight")[0])
    if scale != USUAL_SCALE:
        writer.add_vision_projector_scale_factor(scale)
    writer.add_vision_image_size(224)  # which llama.cpp asks for and does not use
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(width)
    writer.add_vision_feed_forward_length(source.need("intermediate_size"))
    writer.add_vision_block_count(source.need("num_hidden_layers"))
    writer.add_vision_head_count(n_heads)
    writer.add_vision_attention_layernorm_eps(source.need("rms_norm_eps"))
    writer.add_vision_image_mean(processor.get("image_mean", [0.0] * 3) if normalised else [0.0] * 3)
    writer.add_vision_image_std(processor.get("image_std", [1.0] * 3) if normalised else [1.0] * 3)
    if (n_rows := processor.get("max_soft_tokens", USUAL_ROWS)) != USUAL_ROWS:
        writer.add_uint32("weir.vision.max_rows", n_rows)  # llama.cpp has no key


def mmproj_tensors(source):
    patch = source.need("patch_size")
    # Of a linear layer over line, column and colour; a convolution's has colours first.
    kernel = source.tensor("vision_tower.patch_embedder.input_proj.weight").reshape(-1, patch, patch, 3)
    yield "v.patch_embd.weight", kernel.transpose(0, 3, 1, 2)
    yield "v.position_embd.weight", source.tensor("vision_tower.patch_embedder.position_embedding_table")
    for i in range(source.need("num_hidden_layers")):
        hf, to = f"vision_tower.encoder.layers.{i}", f"v.blk.{i}"
        for name, short in VISION_NORMS.items():
            yield f"{to}.{short}.weight", source.tensor(f"{hf}.{name}.weight")
        for name, short in VISION_MATRICES.items():
            yield f"{to}.{short}.weight", source.tensor(f"{hf}.{name}.linear.weight")
            for bound in ("input_min", "input_max", "output_min", "output_max"):
                # An infinite one is none.
                if source.has(tensor := f"{hf}.{name}.{bound}") and np.isfinite(value := source.tensor(tensor)):
                    yield f"{to}.{short}.{bound}", value.reshape(1)
    for name in ("std_bias", "std_scale") if source.get("standardize", False) else ():
        yield f"v.{name}", source.tensor(f"vision_tower.{name}")
    yield "mm.input_projection.weight", source.tensor("embed_vision.embedding_projection.weight")
