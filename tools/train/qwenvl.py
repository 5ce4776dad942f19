# SPDX-License-Identifier: Apache-2.0
"""weir-tiny-qwenvl: Qwen2-VL made small ("Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any
Resolution", 2409.12191): a vision transformer that rotates queries and keys by line and column, a merger of 2 x 2
patches, a Qwen2 decoder with positions on three axes. The modules are those of `transformers`, so the saved folder is
converted like any other.

A frame is 64 x 64 pixels in patches of 8: 16 rows after merging, between two words of the family. Every frame is a
picture of its own: a patch covers one frame (FRAMES), not two, and time moves on by one picture from frame to frame.

It does not learn everything anew (taught.py): the decoder begins as weir-tiny-llava's, whose text it reads alike from
the first step, and the encoder learns to see what that model's encoder sees. Its width is 256 because Qwen2's heads
share it: four of 64.
"""

import json

import torch
import transformers
from torch import nn
from torch.nn import functional as F

from tools.train import draw, naming, seeing, tokenizer
from tools.train.data import Stage
from tools.train.world import Mix

NAME, PICTURES = "weir-tiny-qwenvl", False
ROWS_EACH = None
CONTEXT = 4096
AROUND = ("<|vision_start|>", "<|vision_end|>")  # of a frame
WORDS = (*AROUND, "<|video_pad|>")  # tokens beyond those of the world; the last one only because the family names it
FRAMES = 1  # that a patch covers
PATCH, MERGE = 8, 2
SIZES = {  # encoder (width, blocks, heads), decoder (width, blocks, feed-forward, heads, KV heads)
    "tiny": ((64, 2, 2), (128, 4, 256, 2, 1)),
    "small": ((96, 4, 3), (256, 6, 384, 4, 2)),
    "base": ((192, 6, 6), (384, 8, 768, 6, 2)),
}
TAUGHT_BY = {"small": "weir-tiny-llava"}  # whose decoder has as many blocks and heads
PAIRS = (0.3, 0.1, 0.1, 0.15, 0.35)  # questions about one of two things in a picture take longest to learn
SIGNS = (0.3, 0.2, 0.2, 0.2, 0.1)  # then those to be read: digits, letters, words


def stages(size):
    """Those of a model that can read and remember already: what it has to learn is to see, and where rows stand."""
    if size == "tiny":
        return [
            Stage("see", 1200, 64, 2e-3),
            Stage("look", 1200, 12, 2e-3, Mix(clips=(1, 1), frames=(1, 1), rounds=(3, 5)), 0.3),
            Stage("span", 600, 6, 1e-3, Mix(clips=(2, 4), rounds=(2, 3), kinds=(0.4, 0.3, 0.3, 0.0)), 0.1),
        ]
    more = 8 if size == "base" else 1
    return [
        Stage("see", 400, 96 * more, 2e-3),
        Stage(
            "look",
            130,
            20 * more,
            8e-4,
            Mix(clips=(1, 3), rounds=(4, 6), kinds=(0.75, 0.25, 0.0, 0.0), subjects=PAIRS),
            0.7,
        ),
        Stage(
            "read",
            150,
            20 * more,
            8e-4,
            Mix(clips=(1, 3), rounds=(4, 6), kinds=(0.75, 0.25, 0.0, 0.0), subjects=SIGNS),
            0.7,
        ),
        Stage(
            "span",
            300,
            6 * more,
            6e-4,
            Mix(clips=(6, 16), rounds=(1, 3), kinds=(0.6, 0.15, 0.2, 0.05), closing=(8, 20), subjects=SIGNS),
            0.5,
        ),
        Stage(
            "stream",
            200,
            3 * more,
            5e-4,
            Mix(clips=(12, 36), rounds=(1, 1), kinds=(0.35, 0.15, 0.4, 0.1), closing=(12, 30)),
            0.3,
        ),
    ]


def places(ids, image, side):
    """ids [n, t] -> positions [3, n, t] of time, line and column: a word comes one after everything before it, a
    picture of side x side rows begins there, too, and what follows begins after its last line and column."""
    shown = ids == image
    at = (shown.cumsum(1) - 1) % (side * side)  # of its picture's rows
    steps = torch.where(shown, torch.where(at == side * side - 1, side, 0), 1)
    begins = steps.cumsum(1) - steps
    line, column = (torch.where(shown, n, 0) for n in (at // side, at % side))
    return torch.stack([begins, begins + line, begins + column])


class Model(nn.Module):
    def __init__(self, size="small"):
        super().__init__()
        (v_width, v_blocks, v_heads), (width, blocks, ff, heads, kv_heads) = SIZES[size]
        vision = dict(
            depth=v_blocks,
            embed_dim=v_width,
            hidden_size=width,
            num_heads=v_heads,
            mlp_ratio=4,
            patch_size=PATCH,
            spatial_merge_size=MERGE,
            temporal_patch_size=FRAMES,
        )
        text = dict(
            vocab_size=tokenizer.VOCAB,
            hidden_size=width,
            intermediate_size=ff,
            num_hidden_layers=blocks,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
            rope_parameters=dict(rope_type="default", rope_theta=500000.0, mrope_section=[8, 12, 12]),
        )
        self.image = 2
        start, end, video = tokenizer.numbers(WORDS)
        config = transformers.Qwen2VLConfig(
            vision_config=vision,
            text_config=text,
            image_token_id=self.image,
            video_token_id=video,
            vision_start_token_id=start,
            vision_end_token_id=end,
            tie_word_embeddings=True,
        )
        self.whole = transformers.Qwen2VLForConditionalGeneration(config)
        nn.init.normal_(self.embeddings(), std=0.1)  # as in llava.py
        self.side = draw.SIZE // PATCH // MERGE
        self.n_rows, self.width = self.side**2, width

    def eyes(self):
        """The vision modules."""
        return [self.whole.model.visual]

    def patches(self, pixels):
        """[n, 64, 64, 3] uint8 -> [n, patches, values], those of a square side by side."""
        x = seeing.normalise(pixels).reshape(-1, 3, self.side, MERGE, PATCH, self.side, MERGE, PATCH)
        return x.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(len(pixels), self.n_rows * MERGE**2, -1)

    def rows(self, pixels):
        """[n, 64, 64, 3] uint8 -> [n, n_rows, width]. What the tower computes, for pictures of one size at once: its
        own code takes them one by one."""
        tower = self.whole.model.visual
        x = F.linear(self.patches(pixels), tower.patch_embed.proj.weight.flatten(1))
        n, n_patches, width = x.shape
        square = torch.arange(self.n_rows, device=x.device)[:, None]
        inside = torch.arange(MERGE**2, device=x.device)[None]
        lines = (square // self.side * MERGE + inside // MERGE).flatten()
        columns = (square % self.side * MERGE + inside % MERGE).flatten()
        cos, sin = tower.rotary_pos_emb(x, torch.stack([lines, columns], dim=1))
        for block in tower.blocks:
            qkv = block.attn.qkv(block.norm1(x)).reshape(n, n_patches, 3, block.attn.num_heads, -1)
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            q, k = (_rotate(part.float(), cos, sin).to(v.dtype) for part in (q, k))
            mixed = F.scaled_dot_product_attention(q, k, v)
            x = x + block.attn.proj(mixed.transpose(1, 2).reshape(n, n_patches, width))
            x = x + block.mlp(block.norm2(x))
        return tower.merger(x.flatten(0, 1)).reshape(n, self.n_rows, -1)

    def hidden(self, ids, rows):
        """ids [n, t] with an image token for every row -> [n, t, width], at the last layer and where tokens should know
        their clip."""
        text = self.whole.model.language_model
        embedded = text.embed_tokens(ids)
        at = (ids == self.image).unsqueeze(-1).expand_as(embedded)
        embedded = embedded.masked_scatter(at, rows.to(embedded.dtype))
        out = text(
            inputs_embeds=embedded,
            position_ids=places(ids, self.image, self.side),
            use_cache=False,
            output_hidden_states=True,
        )
        return out.last_hidden_state, out.hidden_states[naming.AFTER_BLOCKS]

    def embeddings(self):
        return self.whole.lm_head.weight

    def logits(self, hidden):
        return self.whole.lm_head(hidden)

    def save(self, folder):
        self.whole.save_pretrained(folder)
        tokenizer.write(folder, words=WORDS)
        pixels = draw.SIZE**2
        (folder / "preprocessor_config.json").write_text(
            json.dumps(
                dict(
                    image_processor_type="Qwen2VLImageProcessor",
                    size=dict(shortest_edge=pixels, longest_edge=pixels),
                    patch_size=PATCH,
                    merge_size=MERGE,
                    temporal_patch_size=FRAMES,
                    resample=3,
                    image_mean=seeing.MEAN,
                    image_std=seeing.STD,
                ),
                indent=1,
            )
        )


def _rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin
