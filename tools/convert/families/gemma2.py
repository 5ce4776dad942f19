# SPDX-License-Identifier: Apache-2.0
"""Gemma 2: GGUF architecture `gemma2`. Gemma 3 shares everything not named after Gemma 2."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "gemma2"
HF_NAMES = ("Gemma2ForCausalLM",)

LAYER = {
    **llama.LAYER,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def decoder_metadata(source, writer, say, global_every):
    """Keys of both generations; layer l has no window where (l + 1) % global_every == 0."""
    llama.decoder_metadata(source, writer, say, act="gelu_pytorch_tanh")
    n_layers = source.need("num_hidden_layers")
    kinds = source.get("layer_types")
    usual = ["sliding_attention" if (i + 1) % global_every else "full_attention" for i in range(n_layers)]
    if kinds and kinds != usual:
        raise ConvertError(
            f"config.json: layer_types {kinds}; this architecture is defined with every {global_every}th layer "
            "without a window"
        )
    writer.add_sliding_window(source.need("sliding_window"))
    # Without this key readers guess: head_dim, or width divided by heads if they recognise the largest
    # model.
    writer.add_attention_scale(float(source.get("query_pre_attn_scalar", 256)) ** -0.5)


def tensors(source, layer_map=LAYER):
    """Norm weights are stored as offsets from 1."""
    for name, array in llama.decoder_tensors(source, layer_map, tied=True):
        yield name, array + 1.0 if name.endswith("norm.weight") else array


def metadata(source, writer, say):
    decoder_metadata(source, writer, say, 2)
    writer.add_attn_logit_softcapping(source.get("attn_logit_softcapping") or 0.0)
    writer.add_final_logit_softcapping(source.get("final_logit_softcapping") or 0.0)
