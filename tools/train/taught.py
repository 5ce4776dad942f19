# SPDX-License-Identifier: Apache-2.0
"""What a model takes over from weir-tiny-llava instead of learning it anew: the decoder's weights, which read text the
same from the first step, and the rows of its encoder, which the new one learns to make of the same pictures.

A wider decoder computes what the narrower one did: its additional dimensions begin empty. Nothing writes to them, and
what reads them is small and random, so that they can be learned.
"""

from pathlib import Path

import gguf
import torch
from torch.nn import functional as F

from tools.train import llava

MODELS = Path(__file__).resolve().parents[2] / "models"
READS = 0.02  # deviation of the weights that read an additional dimension

LAYER = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
WRITES = ("attn_output", "ffn_down")  # to the stream; the other matrices read from it
TOWER = {
    "ln1": "layer_norm1",
    "ln2": "layer_norm2",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_out": "self_attn.out_proj",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}


def tensors(path):
    """{name: F32 tensor} of a GGUF file."""
    return {
        t.name: torch.from_numpy(gguf.quants.dequantize(t.data, t.tensor_type).copy())
        for t in gguf.GGUFReader(path).tensors
    }


def halves(rows, n_heads):
    """The inverse of tools/convert/families/llama.py's interleave(): the rows of a head in Hugging Face's order."""
    pairs = rows.reshape(n_heads, rows.shape[0] // n_heads // 2, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)


class Teacher(torch.nn.Module):
    def __init__(self, name, size="small"):
        super().__init__()
        self.of = tensors(MODELS / f"{name}.gguf")
        self.n_heads, self.n_kv_heads = llava.SIZES[size][1][3:]
        self.eyes = llava.Model(size)
        self.eyes.whole.model.language_model.layers = torch.nn.ModuleList()  # only its encoder is run
        self._open_eyes(tensors(MODELS / f"mmproj-{name}.gguf"))
        self.requires_grad_(False)
        self.eval()

    def _open_eyes(self, of):
        model = self.eyes.whole.model
        tower = getattr(model.vision_tower, "vision_model", model.vision_tower)
        to = {
            "v.class_embd": tower.embeddings.class_embedding,
            "v.patch_embd.weight": tower.embeddings.patch_embedding.weight,
            "v.position_embd.weight": tower.embeddings.position_embedding.weight,
        }
        modules = {"v.pre_ln": tower.pre_layrnorm}
        modules |= {"mm.0": model.multi_modal_projector.linear_1, "mm.2": model.multi_modal_projector.linear_2}
        for i, layer in enumerate(tower.encoder.layers):
            modules |= {f"v.blk.{i}.{name}": layer.get_submodule(path) for name, path in TOWER.items()}
        for name, module in modules.items():
            to |= {f"{name}.{kind}": getattr(module, kind) for kind in ("weight", "bias")}
        with torch.no_grad():
            for name, parameter in to.items():
                parameter.copy_(of.pop(name).reshape(parameter.shape))
        assert not of, sorted(of)

    @torch.no_grad()
    def start(self, model):
        """Gives `model` the decoder's weights."""
        text = model.whole.model.language_model
        narrow = self.of["token_embd.weight"].shape[1]
        same = (narrow / model.width) ** 0.5  # of the norms, whose mean has more dimensions

        def put(parameter, value, writes=False):
            if parameter.ndim == 1:
                parameter.fill_(float(value.mean()) * same)
                parameter[:narrow] = value * same
            elif writes:
                parameter.zero_()
                parameter[: value.shape[0]] = value
            else:
                parameter.normal_(std=READS)
                parameter[:, :narrow] = value

        text.embed_tokens.weight.zero_()
        text.embed_tokens.weight[:, :narrow] = self.of["token_embd.weight"]
        put(text.norm.weight, self.of["output_norm.weight"])
        for i, layer in enumerate(text.layers):
            for name, path in LAYER.items():
                value = self.of[f"blk.{i}.{name}.weight"]
                if name in ("attn_q", "attn_k"):
                    value = halves(value, self.n_heads if name == "attn_q" else self.n_kv_heads)
                put(layer.get_submodule(path).weight, value, name in WRITES)
            for name in ("q", "k", "v"):
                layer.get_submodule(f"self_attn.{name}_proj").bias.zero_()

    def loss(self, rows, pixels):
        """(loss, (share of the rows' variance that is explained, in pictures, of all)) of rows [n, r, width]."""
        with torch.no_grad():
            told = self.eyes.rows(pixels).float()
        told = F.pad(told, (0, rows.shape[-1] - told.shape[-1]))
        left = (rows.float() - told).square().mean() / told.var(dim=(0, 1), correction=0).mean()
        n = len(pixels)
        return left, ((n * (1 - left.detach())).round(), torch.tensor(n))
