# SPDX-License-Identifier: Apache-2.0
"""Granite, dense: GGUF architecture `granite`."""

from . import llama

GGUF_ARCH = "granite"
HF_NAMES = ("GraniteForCausalLM",)


def metadata(source, writer, say):
    llama.decoder_metadata(source, writer, say)
    writer.add_attention_scale(source.need("attention_multiplier"))
    writer.add_embedding_scale(source.need("embedding_multiplier"))
    writer.add_residual_scale(source.need("residual_multiplier"))
    writer.add_logit_scale(source.need("logits_scaling"))


tensors = llama.tensors
