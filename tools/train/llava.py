# SPDX-License-Identifier: Apache-2.0
"""weir-tiny-llava: LLaVA-1.5 made small ("Improved Baselines with Visual Instruction Tuning", 2310.03744): CLIP's
vision transformer, a projector of two layers, a Llama decoder. The modules are those of `transformers`, so the
saved folder is converted like any other.

A frame is 64 x 64 pixels in patches of 16: 16 rows. The encoder has only the blocks that are used: CLIP's last block,
which LLaVA skips, is not trained at all. Keys are matched over thousands of tokens, so heads are wide (64) and RoPE
slow (theta 500,000): half of a head's pairs turn less than once in the context.
"""

import json

import transformers
from torch import nn

from tools.train import draw, naming, seeing, tokenizer
from tools.train.data import Stage
from tools.train.world import Mix

NAME, PICTURES = "weir-tiny-llava", False
ROWS_EACH = None  # of the rows, for a label while the encoder learns to see: all
CONTEXT = 4096
SIZES = {  # encoder (width, blocks, heads), decoder (width, blocks, feed-forward, heads, KV heads)
    "tiny": ((96, 3, 3), (128, 4, 256, 2, 1)),
    "small": ((128, 4, 4), (192, 6, 384, 4, 2)),
    "base": ((192, 6, 6), (320, 8, 768, 8, 2)),
}
PAIRS = (0.3, 0.1, 0.1, 0.15, 0.35)  # questions about one of two things in a picture take longest to learn
ONLY_PAIRS = (0.08, 0.03, 0.03, 0.06, 0.8)  # only nearly all, so that nothing else is forgotten
SINGLES = (0.45, 0.2, 0.1, 0.15, 0.1)  # picture contents must be recognised before they are looked up in the past


def stages(size):
    """Short before long, the present before the past. Each stage asks mostly what it teaches: many questions per clip
    while single pictures are learned, memory questions once pictures can be read."""
    if size == "tiny":
        return [
            Stage("see", 1200, 64, 2e-3),
            Stage("look", 1200, 12, 2e-3, Mix(clips=(1, 1), frames=(1, 1), rounds=(3, 5)), 0.3),
            Stage(
                "recall", 600, 6, 1e-3, Mix(clips=(2, 4), frames=(1, 1), rounds=(2, 3), kinds=(0.4, 0.3, 0.3, 0.0)), 0.0
            ),
        ]
    more = 8 if size == "base" else 1
    return [
        Stage("see", 3000, 128 * more, 1e-3),
        Stage(
            "look",
            1800,
            32 * more,
            1e-3,
            Mix(clips=(1, 3), rounds=(4, 6), kinds=(0.75, 0.25, 0.0, 0.0), subjects=PAIRS),
            0.3,
        ),
        Stage(
            "name",
            400,
            48 * more,
            1e-3,
            Mix(clips=(3, 8), frames=(0, 0), rounds=(1, 1), closing=(8, 8), told=True, numbered=1.0),
            0.0,
        ),
        Stage(
            "recall",
            400,
            24 * more,
            1e-3,
            Mix(
                clips=(3, 8),
                frames=(1, 1),
                rounds=(1, 1),
                kinds=(0.5, 0.2, 0.25, 0.05),
                closing=(6, 14),
                subjects=SINGLES,
            ),
            0.0,
        ),
        Stage(
            "span",
            500,
            8 * more,
            8e-4,
            Mix(clips=(6, 16), rounds=(1, 3), kinds=(0.6, 0.15, 0.2, 0.05), closing=(8, 20), subjects=PAIRS),
            0.1,
        ),
        Stage("pair", 900, 96 * more, 1e-3, Mix(clips=(1, 1), frames=(1, 1), rounds=(1, 1), subjects=ONLY_PAIRS), 0.1),
        Stage(
            "stream",
            600,
            3 * more,
            5e-4,
            Mix(clips=(12, 36), rounds=(1, 1), kinds=(0.35, 0.15, 0.4, 0.1), closing=(12, 30)),
            0.0,
        ),
    ]


class Model(nn.Module):
    def __init__(self, size="small"):
        super().__init__()
        (v_width, v_blocks, v_heads), (width, blocks, ff, heads, kv_heads) = SIZES[size]
        vision = transformers.CLIPVisionConfig(
            hidden_size=v_width,
            intermediate_size=4 * v_width,
            num_hidden_layers=v_blocks,
            num_attention_heads=v_heads,
            image_size=draw.SIZE,
            patch_size=16,
            hidden_act="quick_gelu",
            layer_norm_eps=1e-5,
        )
        text = transformers.LlamaConfig(
            vocab_size=tokenizer.VOCAB,
            hidden_size=width,
            intermediate_size=ff,
            num_hidden_layers=blocks,
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=64,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
            rope_parameters=dict(rope_type="default", rope_theta=500000.0),
        )
        config = transformers.LlavaConfig(
            vision_config=vision,
            text_config=text,
            image_token_index=2,
            vision_feature_layer=-1,
            vision_feature_select_strategy="default",
            tie_word_embeddings=True,
        )
        self.whole = transformers.LlavaForConditionalGeneration(config)
        # Output rows that are rarely the answer are pushed the same way by every other answer: clip numbers start far
        # enough apart to stay distinct.
        nn.init.normal_(self.embeddings(), std=0.1)
        self.n_rows, self.width, self.image = (draw.SIZE // 16) ** 2, width, 2

    def eyes(self):
        """The vision modules."""
        return [self.whole.model.vision_tower, self.whole.model.multi_modal_projector]

    def rows(self, pixels):
        """[n, 64, 64, 3] uint8 -> [n, n_rows, width]."""
        seen = self.whole.model.vision_tower(seeing.normalise(pixels)).last_hidden_state
        return self.whole.model.multi_modal_projector(seen[:, 1:])

    def hidden(self, ids, rows):
        """ids [n, t] with an image token for every row -> [n, t, width], at the last layer and where tokens should know
        their clip."""
        text = self.whole.model.language_model
        embedded = text.embed_tokens(ids)
        at = (ids == self.image).unsqueeze(-1).expand_as(embedded)
        embedded = embedded.masked_scatter(at, rows.to(embedded.dtype))
        out = text(inputs_embeds=embedded, use_cache=False, output_hidden_states=True)
        return out.last_hidden_state, out.hidden_states[naming.AFTER_BLOCKS]

    def embeddings(self):
        return self.whole.lm_head.weight

    def logits(self, hidden):
        return self.whole.lm_head(hidden)

    def save(self, folder):
        self.whole.save_pretrained(folder)
        tokenizer.write(folder)
        (folder / "preprocessor_config.json").write_text(
            json.dumps(
                dict(
                    image_processor_type="LlavaImageProcessor",
                    do_pad=True,
                    do_resize=True,
                    size=dict(shortest_edge=draw.SIZE),
                    do_center_crop=True,
                    crop_size=dict(height=draw.SIZE, width=draw.SIZE),
                    resample=3,
                    image_mean=seeing.MEAN,
                    image_std=seeing.STD,
                ),
                indent=1,
            )
        )
