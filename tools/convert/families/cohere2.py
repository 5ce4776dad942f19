# SPDX-License-Identifier: Apache-2.0
"""Command R and Aya (GGUF architecture `command-r`), Command R7B and Command A (`cohere2`). Both formats rotate
interleaved pairs, so no row moves."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "cohere2"
HF_NAMES = ("Cohere2ForCausalLM",)

LAYER = {hf: name for hf, name in llama.LAYER.items() if name != "ffn_norm"}


def decoder_metadata(source, writer, say):
    if source.get("use_qk_norm", False):
        raise ConvertError("config.json: use_qk_norm is not converted for this architecture")
    llama.decoder_metadata(source, writer, say, eps="layer_norm_eps")
    writer.add_logit_scale(source.get("logit_scale", 0.0625))


def metadata(source, writer, say):
    decoder_metadata(source, writer, say)
    llama.window_metadata(source, writer, every=4)


def tensors(source):
    yield from llama.decoder_tensors(source, LAYER, tied=True)
