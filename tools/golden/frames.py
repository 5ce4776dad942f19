#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds tests/golden/vision/flash_vstream* and chat_univi*: tiny random encoders that encode a video's frames
jointly, with their reference numbers.

    tools/golden/frames.py [--out tests/golden/vision]

NAME.gguf     random weights laid out as in the family's repository (CLIP made by `transformers`), converted by
              hf_to_gguf.py
NAME.golden   the paper's rules, reimplemented below in NumPy, applied to CLIP's rows, all in float64

Format as in tiny_models.py. `pixels`: frames in sequence, [frames * 3 * SIZE, SIZE]. Entries:
  v.*, mm.*          intermediates of the first frame, encoded as a picture
  star.T, rows.T     Flash-VStream's memory after T frames (2406.08085, section 3.2), and the rows that the
                     language model reads of it
  merged.A.B, rows.A.B   Chat-UniVi's rows of frames A to B (2311.08046, section 3.2), before and after its
                     projection

Choices that the papers leave open are documented in src/vision/flash_vstream.cc and dpc_knn.h. Needs torch,
transformers, safetensors, gguf.
"""

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.convert.families import chat_univi, flash_vstream
from tools.golden.vision import write

# 8 patches along a side; widths that are not multiples of any vector length.
VISION = dict(
    hidden_size=40,
    intermediate_size=72,
    num_hidden_layers=3,
    num_attention_heads=5,
    image_size=25,
    patch_size=3,
    hidden_act="quick_gelu",
    layer_norm_eps=1e-5,
)
TEXT = dict(
    vocab_size=320,
    hidden_size=48,
    intermediate_size=64,
    num_hidden_layers=1,
    num_attention_heads=3,
    num_key_value_heads=3,
    head_dim=16,
    max_position_embeddings=512,
)
# Scenes recur, and change while nothing else does.
SCENES, NOISE = (0, 0, 0, 1, 1, 2, 2, 2, 0, 3, 3, 3, 1, 4, 4, 0), 0.25
STAR = dict(
    compress_size=4,
    video_current_memory_length=1,
    compress_long_memory_size=2,
    video_long_memory_length=5,
    compress_Turing_memory_size=2,
    video_Turing_memory_length=3,
    compress_Turing_update_ratio=0.2,
)
N_KEY, RETRIEVED, BUFFER, AT = 6, 2, 7, (1, 2, 5, 9, 16)
UNIVI = dict(
    use_cluster=True,
    spatial_cluster_rate0=12,
    spatial_cluster_rate1=6,
    spatial_cluster_rate2=3,
    temporal_cluster_rate=1 / 4,
)
MOST_FRAMES, RUNS = 10, ((0, 2), (0, 3), (0, 10), (10, 16))


def fill(module, g):
    with torch.no_grad():
        for name, p in sorted(module.named_parameters()):
            if "norm" in name and name.endswith("weight"):
                p.copy_(1.0 + 0.2 * torch.randn(p.shape, generator=g))
            elif name.endswith("bias"):
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
            else:
                wide = 2.0 if "q_proj" in name or "k_proj" in name else 1.0
                p.copy_(wide / p[0].numel() ** 0.5 * torch.randn(p.shape, generator=g))
    return module.eval()


def layer(n_out, n_in, g):
    return fill(torch.nn.Linear(n_in, n_out), g)


def save(folder, name, model, tower, inside, parts, **config):
    """A folder laid out like the published ones: the language model's tensors and other parts, with the encoder's
    inside or in a separate folder."""
    out = dict(model.state_dict())
    out.update(
        {f"model.{part}.{key}": value for part, module in parts.items() for key, value in module.state_dict().items()}
    )
    beside = Path(folder) / "vision_tower"
    beside.mkdir()
    (beside / "config.json").write_text(json.dumps(dict(vision_config=VISION)))
    if inside:
        out.update({f"model.vision_tower.vision_tower.{key}": value for key, value in tower.items()})
    else:
        save_file(tower, f"{beside}/model.safetensors")
    save_file({key: value.contiguous() for key, value in out.items()}, f"{folder}/model.safetensors")
    (Path(folder) / "config.json").write_text(json.dumps({**model.config.to_dict(), "architectures": [name], **config}))


def convert(folder, out, name):
    hf_to_gguf.convert_folder(folder, out / f"{name}.gguf", "f32", name=f"tiny random {name}", mmproj=True)
    hf_to_gguf.convert_folder(
        folder, Path(folder) / "text.gguf", "f32", with_vocab=False
    )  # the other half is converted, too


class Clip:
    """CLIP's patches before the last block, in float64, with the names of its intermediates."""

    def __init__(self, tower):
        self.tower = tower.double()

    def patches(self, pixels):
        with torch.no_grad():
            return self.tower(torch.tensor(pixels)[None], output_hidden_states=True).hidden_states[-2][0, 1:].numpy()

    def intermediates(self, pixels):
        seen, hooks = {}, []

        def keep(name, module, before=False):
            def hook(m, inputs, output=None):
                value = inputs[0] if before else output[0] if isinstance(output, tuple) else output
                seen[name] = value.reshape(-1, value.shape[-1]).detach().numpy().copy()

            hooks.append(module.register_forward_pre_hook(hook) if before else module.register_forward_hook(hook))

        tower = getattr(self.tower, "vision_model", self.tower)
        keep("v.embd", tower.embeddings)
        keep("v.pre_ln", tower.pre_layrnorm)
        for i, block in enumerate(tower.encoder.layers[:-1]):
            att = block.self_attn
            for name, module in (
                ("ln1", block.layer_norm1),
                ("q", att.q_proj),
                ("k", att.k_proj),
                ("v", att.v_proj),
                ("ln2", block.layer_norm2),
                ("out", block),
            ):
                keep(f"v.blk.{i}.{name}", module)
            keep(f"v.blk.{i}.mix", att.out_proj, before=True)
            keep(f"v.blk.{i}.mid", block.layer_norm2, before=True)
        self.patches(pixels)
        for hook in hooks:
            hook.remove()
        return seen


def linear(module, x):
    return x @ module.weight.detach().double().numpy().T + module.bias.detach().double().numpy()


def pool(x, side):
    """Rows of a square grid, averaged down to a grid of `side`."""
    n = round(len(x) ** 0.5)
    return x.reshape(side, n // side, side, n // side, -1).mean(axis=(1, 3)).reshape(side * side, -1)


def merge_lightest(points, weights, n):
    """n of n + 1 weighted points, then k-means from there."""
    best = None
    for i in range(n + 1):
        for j in range(i + 1, n + 1):
            both = weights[i] + weights[j]
            cost = weights[i] * weights[j] / both * ((points[i] - points[j]) ** 2).sum() if both > 0 else 0.0
            if best is None or cost < best[0]:
                best = (cost, i if weights[i] < weights[j] else j)
    centroids = np.delete(points, best[1], axis=0)
    for _ in range(10):
        labels = ((points[:, None] - centroids[None]) ** 2).sum(axis=2).argmin(axis=1)
        sizes = np.array([weights[labels == c].sum() for c in range(n)])
        moved = np.array(
            [
                (weights[labels == c, None] * points[labels == c]).sum(axis=0) / sizes[c]
                if sizes[c] > 0
                else centroids[c]
                for c in range(n)
            ]
        )
        shift = np.linalg.norm(moved - centroids, axis=1).sum()
        centroids = moved
        if shift < 1e-4:
            break
    return centroids, sizes


def star(frames, wq, wk):
    """The memory's rows after each frame; frames: patches' rows of each."""
    spatial, temporal, abstract = (
        STAR[key] for key in ("compress_size", "compress_long_memory_size", "compress_Turing_memory_size")
    )
    buffer, drifting, ratio = [], [], STAR["compress_Turing_update_ratio"]
    points, weights, out = np.zeros((0, 0)), np.zeros(0), []
    for patches in frames:
        fine = pool(patches, spatial)
        buffer = (buffer + [fine])[-BUFFER:]
        coarse = pool(patches, temporal).reshape(1, -1)
        points = np.concatenate([points.reshape(-1, coarse.shape[1]), coarse])
        weights = np.append(weights, 1.0)
        if len(points) > STAR["video_long_memory_length"]:
            points, weights = merge_lightest(points, weights, STAR["video_long_memory_length"])
        new = pool(patches, abstract)
        if len(drifting) < STAR["video_Turing_memory_length"]:
            drifting.append(new)
        else:
            memory = np.concatenate(drifting)
            scores = linear(wq, memory) @ linear(wk, new).T / N_KEY**0.5
            share = np.exp(scores - scores.max(axis=1, keepdims=True))
            share /= share.sum(axis=1, keepdims=True)
            memory = (1 - ratio) * memory + ratio * share @ new
            drifting = np.split(memory, len(drifting))
        width = patches.shape[1]
        retrieved = []
        if len(out) > 0:
            pooled = np.array([pool(frame, temporal).reshape(-1) for frame in buffer])
            for c in sorted(range(len(points)), key=lambda c: -weights[c])[:RETRIEVED]:
                nearest, best = 0, math.inf
                for t, apart in enumerate(((pooled - points[c]) ** 2).sum(axis=1)):
                    if apart < best * (1 - 1e-4):  # equally near up to rounding: take the older
                        nearest, best = t, apart
                retrieved.append(buffer[nearest])
        newest = buffer[-STAR["video_current_memory_length"] :]
        out.append(np.concatenate([*drifting, points.reshape(-1, width), *retrieved, *newest]))
    return out


def clusters(x, n, k):
    """Density-peaks clustering with k nearest neighbours: the cluster, of n, of each row."""
    k = min(3, max(n // 2, 1)) if k > n else k
    distance = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2) / x.shape[1])
    density = np.exp(-(np.sort(distance, axis=1)[:, :k] ** 2).mean(axis=1))
    rank = np.lexsort((np.arange(len(x)), -density))
    place = np.argsort(rank)  # 0: densest
    apart = np.array([distance[i, place < place[i]].min() if place[i] > 0 else distance.max() for i in range(len(x))])
    centres = np.argsort(-apart * density, kind="stable")[:n]
    out = distance[:, centres].argmin(axis=1)
    out[centres] = np.arange(n)
    return out


def merged(x, n, k):
    labels = clusters(x, n, k)
    return np.array([x[labels == c].mean(axis=0) for c in range(n)])


def levels():
    return [(UNIVI[f"spatial_cluster_rate{i}"], k) for i, k in enumerate((5, 3, 3))]


def of_picture(patches):
    out = []
    for n, k in levels():
        out.append(merged(out[-1] if out else patches, n, k))
    return out


def of_frames(frames):
    tokens = [of_picture(patches) for patches in frames]
    if len(frames) <= 2:
        return np.concatenate([rows for frame in tokens for rows in frame])
    means = np.array([patches.mean(axis=0) for patches in frames])
    events = clusters(means, max(math.ceil(len(frames) * UNIVI["temporal_cluster_rate"]), 1), 5)
    out = []
    for event in dict.fromkeys(events.tolist()):
        for level, (n, k) in enumerate(levels()):
            out.append(
                merged(np.concatenate([tokens[t][level] for t in range(len(frames)) if events[t] == event]), n, k)
            )
    return np.concatenate(out)


def gelu(x):
    return torch.nn.functional.gelu(torch.tensor(x)).numpy()


def make_vstream(args, tower, model, clip, frames, g):
    width, out = VISION["hidden_size"], TEXT["hidden_size"]
    projector = torch.nn.Sequential(layer(out, width, g), torch.nn.GELU(), layer(out, out, g))
    memory = torch.nn.ModuleDict(
        dict(
            q_proj=layer(N_KEY, width, g),
            k_proj=layer(N_KEY, width, g),
            v_proj=layer(N_KEY, width, g),
            out_proj=layer(width, N_KEY, g),
        )
    )
    flash_vstream.RETRIEVED, flash_vstream.BUFFER = RETRIEVED, BUFFER
    with tempfile.TemporaryDirectory() as folder:
        save(
            folder,
            "VStreamLlamaForCausalLM",
            model,
            tower,
            False,
            dict(mm_projector=projector, attention_model=memory),
            **STAR,
        )
        convert(folder, args.out, "flash_vstream")
    project = lambda x: linear(projector[2], gelu(linear(projector[0], x)))
    shown = [clip.patches(pixels) for pixels in frames]
    first = pool(shown[0], STAR["compress_size"])
    entries = {
        "pixels": frames.reshape(-1, VISION["image_size"]),
        **clip.intermediates(frames[0]),
        "mm.pool": first,
        "mm.0": linear(projector[0], first),
        "mm.2": project(first),
    }
    after = star(shown, memory["q_proj"], memory["k_proj"])
    for t in AT:
        entries[f"star.{t}"] = after[t - 1]
        entries[f"rows.{t}"] = project(after[t - 1])
    write(args.out / "flash_vstream.golden", entries)


def make_univi(args, tower, model, clip, frames, g):
    projector = layer(TEXT["hidden_size"], VISION["hidden_size"], g)
    chat_univi.MOST_FRAMES = MOST_FRAMES
    with tempfile.TemporaryDirectory() as folder:
        save(folder, "ChatUniViLlamaForCausalLM", model, tower, True, dict(mm_projector=projector), config=UNIVI)
        convert(folder, args.out, "chat_univi")
    shown = [clip.patches(pixels) for pixels in frames]
    first = np.concatenate(of_picture(shown[0]))
    entries = {
        "pixels": frames.reshape(-1, VISION["image_size"]),
        **clip.intermediates(frames[0]),
        "mm.merged": first,
        "mm.0": linear(projector, first),
    }
    for a, b in RUNS:
        rows = of_frames(shown[a:b])
        entries[f"merged.{a}.{b}"] = rows
        entries[f"rows.{a}.{b}"] = linear(projector, rows)
    write(args.out / "chat_univi.golden", entries)


def main():
    parser = argparse.ArgumentParser(description="Builds tests/golden/vision/flash_vstream* and chat_univi*.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[2] / "tests/golden/vision")
    parser.add_argument("--seed", type=int, default=20240607)
    args = parser.parse_args()
    torch.set_num_threads(1)  # one order of summation
    args.out.mkdir(parents=True, exist_ok=True)
    g = torch.Generator().manual_seed(args.seed)
    tower = fill(transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**VISION)), g)
    model = fill(transformers.LlamaForCausalLM(transformers.LlamaConfig(**TEXT)), g)
    state = {f"vision_model.{name.removeprefix('vision_model.')}": p.clone() for name, p in tower.state_dict().items()}
    rng, side = np.random.default_rng(args.seed), VISION["image_size"]
    scenes = rng.standard_normal((max(SCENES) + 1, 3, side, side))
    frames = (
        np.array([scenes[s] + NOISE * rng.standard_normal((3, side, side)) for s in SCENES])
        .astype(np.float32)
        .astype(np.float64)
    )
    clip = Clip(tower)
    make_vstream(args, state, model, clip, frames, g)
    make_univi(args, state, model, clip, frames, g)


if __name__ == "__main__":
    main()
