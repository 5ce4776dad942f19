# SPDX-License-Identifier: Apache-2.0
"""SmolLM3: GGUF architecture `smollm3`, which implies that every fourth layer rotates nothing."""

from ..source import ConvertError
from . import llama

GGUF_ARCH = "smollm3"
HF_NAMES = ("SmolLM3ForCausalLM",)
EVERY = 4


def metadata(source, writer, say):
    if source.get("use_sliding_window", False):
        raise ConvertError("config.json: use_sliding_window is not converted for this architecture")
    n_layers, interval = source.need("num_hidden_layers"), source.get("no_rope_layer_interval", EVERY)
    rotates = source.get("no_rope_layers") or [(i + 1) % interval != 0 for i in range(n_layers)]
    if [bool(r) for r in rotates] != [(i + 1) % EVERY != 0 for i in range(n_layers)]:
        raise ConvertError(f"config.json: no_rope_layers {rotates}; GGUF's `smollm3` has every {EVERY}th layer without")
    llama.decoder_metadata(source, writer, say)


tensors = llama.tensors
