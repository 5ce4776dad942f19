# SPDX-License-Identifier: Apache-2.0
"""StableLM: GGUF architecture `stablelm`."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "stablelm"
HF_NAMES = ("StableLmForCausalLM", "StableLMEpochForCausalLM")


def metadata(source, writer, say):
    source.config.setdefault("partial_rotary_factor", 0.25)
    for key in ("qk_layernorm", "use_parallel_residual"):
        if source.get(key, False):
            raise ConvertError(f"config.json: {key} is not converted for this architecture")
    llama.decoder_metadata(source, writer, say, eps="layer_norm_eps")
    writer.add_parallel_residual(False)


def tensors(source):
    yield from llama.decoder_tensors(source, llama.LAYER)
