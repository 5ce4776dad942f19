# SPDX-License-Identifier: Apache-2.0
"""weir-tiny-blip2-half: weir-tiny-blip2 with another Q-Former, which attends to the picture in every other of its
blocks, as the published one does. It is trained as the published one is: between the encoder and the decoder of
weir-tiny-blip2, which stay as they are. So its files differ from that model's in the Q-Former alone, and in the
projection of its rows.
"""

from dataclasses import replace

import torch

from tools.convert.families import blip2 as names
from tools.convert.families import opt
from tools.train import blip2, taught
from tools.train.data import Stage

NAME, PICTURES, ROWS_EACH = "weir-tiny-blip2-half", blip2.PICTURES, blip2.ROWS_EACH
PARENT = "weir-tiny-blip2"
SIZES = {"small": blip2.SIZES["small"]}  # the parent's
# Share of the recipe's steps: the encoder can see already, the decoder can answer.
LENGTHS = {"see": 0.3, "look": 0.75, "pair": 0.75, "thin": 0.75}


def stages(size):
    """Those of blip2.py, shorter; only the Q-Former learns, at the full rate."""
    return [shorter(stage) for stage in blip2.stages(size)]


def shorter(stage: Stage):
    return replace(stage, steps=round(stage.steps * LENGTHS.get(stage.name, 1)), see_lr=1.0)


class Model(blip2.Model):
    def __init__(self, size="small"):
        super().__init__(size, cross_every=2)


@torch.no_grad()
def start(model):
    """Gives `model` the parent's encoder and decoder, which learn nothing more."""
    whole = model.whole
    eyes = taught.tensors(taught.MODELS / f"mmproj-{PARENT}.gguf")
    decoder = taught.tensors(taught.MODELS / f"{PARENT}.gguf")
    vision, text = whole.vision_model, whole.language_model.model.decoder
    put(vision.embeddings.class_embedding, eyes["v.class_embd"])
    put(vision.embeddings.position_embedding, eyes["v.position_embd.weight"])
    modules = {"v.patch_embd": vision.embeddings.patch_embedding, "v.post_ln": vision.post_layernorm}
    for i, layer in enumerate(vision.encoder.layers):
        modules |= {f"v.blk.{i}.{name}": layer.get_submodule(path) for path, name in names.BLOCK.items()}
    put_modules(modules, eyes)
    put(text.embed_tokens.weight, decoder["token_embd.weight"])
    put(text.embed_positions.weight[opt.OFFSET :], decoder["position_embd.weight"])
    modules = {"output_norm": text.final_layer_norm}
    for i, layer in enumerate(text.layers):
        modules |= {f"blk.{i}.{name}": layer.get_submodule(path) for path, name in opt.LAYER.items()}
    put_modules(modules, decoder)
    for part in (vision, whole.language_model):
        part.requires_grad_(False)


def put(parameter, value):
    parameter.copy_(value.reshape(parameter.shape))


def put_modules(modules, of):
    for name, module in modules.items():
        for kind in ("weight", "bias"):
            put(getattr(module, kind), of[f"{name}.{kind}"])
