# SPDX-License-Identifier: Apache-2.0
"""weir-tiny-blip2: BLIP-2 made small ("BLIP-2: Bootstrapping Language-Image Pre-training with Frozen Image Encoders and
Large Language Models", 2301.12597): EVA's vision transformer, a Q-Former with 32 queries, an OPT decoder; single
pictures only. The modules are those of `transformers`. Nothing is frozen: there is no pre-trained part to protect.

Patches of 8 pixels give 64 patches, so that queries have a choice, and every block of the Q-Former attends to the
picture: one vote per layer, as many as in the BLIP-2 that CATP was measured on.
"""

import json

import transformers
from torch import nn

from tools.train import draw, naming, seeing, tokenizer
from tools.train.data import Stage
from tools.train.world import Mix

NAME, PICTURES = "weir-tiny-blip2", True
ROWS_EACH = 2  # of the rows, for a label while the encoder learns to see
PATCH, N_QUERIES, CONTEXT = 8, 32, 512
# encoder (width, blocks, heads), Q-Former (width, blocks, heads), decoder (width, blocks, feed-forward, heads)
SIZES = {
    "tiny": ((64, 2, 2), (64, 2, 2), (128, 2, 256, 2)),
    "small": ((128, 4, 4), (128, 6, 4), (192, 4, 768, 3)),
    "base": ((192, 6, 6), (192, 6, 6), (320, 6, 1280, 5)),
}
SUBJECTS = (0.3, 0.1, 0.1, 0.15, 0.35)
HARD = (0.12, 0.15, 0.13, 0.1, 0.5)  # the slowest to learn: pairs, digits, letters


def stages(size):
    """First many questions per picture, then one about a pair, whose answer no earlier one can reveal, then as few as a
    user asks, about pictures with rows removed: a decoder trained only on all 32 rows in their places fails with
    fewer."""
    many = Mix(clips=(1, 1), frames=(1, 1), rounds=(3, 5), subjects=SUBJECTS)
    one = Mix(clips=(1, 1), frames=(1, 1), rounds=(1, 1), subjects=HARD)
    few = Mix(clips=(1, 1), frames=(1, 1), rounds=(1, 2), subjects=SUBJECTS)
    if size == "tiny":
        return [
            Stage("see", 600, 48, 2e-3),
            Stage("look", 800, 16, 2e-3, many, 0.3),
            Stage("answer", 200, 16, 1e-3, few, 0.1),
        ]
    more = 8 if size == "base" else 1
    return [
        Stage("see", 2000, 96 * more, 1e-3),
        Stage("look", 800, 40 * more, 1e-3, many, 0.3),
        Stage("pair", 450, 96 * more, 1e-3, one, 0.3),
        Stage("thin", 600, 48 * more, 6e-4, few, 0.3, 0.6),
    ]


class Model(nn.Module):
    def __init__(self, size="small", cross_every=1):
        """`cross_every`: 2 for cross-attention in every other block of the Q-Former, as the published model has it."""
        super().__init__()
        (v_width, v_blocks, v_heads), (q_width, q_blocks, q_heads), (width, blocks, ff, heads) = SIZES[size]
        # The configurations' own initial weights (1e-10 and 0.02) are meant to be overwritten by pre-trained ones. A
        # Q-Former with large ones gives 32 equal rows forever: what its blocks add to all queries alike drowns out
        # their differences. So they are small, except for those by which a query chooses patches.
        vision = dict(
            initializer_range=0.09,
            hidden_size=v_width,
            intermediate_size=4 * v_width,
            num_hidden_layers=v_blocks,
            num_attention_heads=v_heads,
            image_size=draw.SIZE,
            patch_size=PATCH,
            hidden_act="gelu",
            layer_norm_eps=1e-6,
        )
        # No text goes through the Q-Former, so its vocabulary is minimal.
        qformer = dict(
            initializer_range=0.02,
            vocab_size=8,
            hidden_size=q_width,
            num_hidden_layers=q_blocks,
            num_attention_heads=q_heads,
            intermediate_size=4 * q_width,
            encoder_hidden_size=v_width,
            cross_attention_frequency=cross_every,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        text = dict(
            model_type="opt",
            vocab_size=tokenizer.VOCAB,
            hidden_size=width,
            word_embed_proj_dim=width,
            ffn_dim=ff,
            num_hidden_layers=blocks,
            num_attention_heads=heads,
            max_position_embeddings=CONTEXT,
            dropout=0.0,
            attention_dropout=0.0,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
        config = transformers.Blip2Config(
            vision_config=vision,
            qformer_config=qformer,
            text_config=text,
            num_query_tokens=N_QUERIES,
            image_token_index=2,
        )
        self.whole = transformers.Blip2ForConditionalGeneration(config)
        nn.init.normal_(self.whole.query_tokens, std=0.5)  # equal queries would stay equal
        for layer in self.whole.qformer.encoder.layer[::cross_every]:
            for choosing in (layer.crossattention.attention.query, layer.crossattention.attention.key):
                nn.init.normal_(choosing.weight, std=0.12)
        nn.init.normal_(
            self.whole.vision_model.embeddings.position_embedding, std=0.5
        )  # and positions tell patches apart
        self.n_rows, self.width, self.image = N_QUERIES, width, 2

    def eyes(self):
        """The vision modules."""
        return [self.whole.vision_model, self.whole.qformer, self.whole.language_projection]

    def rows(self, pixels):
        """[n, 64, 64, 3] uint8 -> [n, 32, width]."""
        seen = self.whole.vision_model(seeing.normalise(pixels)).last_hidden_state
        queries = self.whole.query_tokens.expand(len(pixels), -1, -1)
        told = self.whole.qformer(query_embeds=queries, encoder_hidden_states=seen).last_hidden_state
        return self.whole.language_projection(told)

    def hidden(self, ids, rows):
        """Like llava's."""
        decoder = self.whole.language_model.model.decoder
        embedded = decoder.embed_tokens(ids)
        at = (ids == self.image).unsqueeze(-1).expand_as(embedded)
        embedded = embedded.masked_scatter(at, rows.to(embedded.dtype))
        out = decoder(inputs_embeds=embedded, use_cache=False, output_hidden_states=True)
        return out.last_hidden_state, out.hidden_states[naming.AFTER_BLOCKS]

    def embeddings(self):
        return self.whole.language_model.lm_head.weight

    def logits(self, hidden):
        return self.whole.language_model.lm_head(hidden)

    def save(self, folder):
        self.whole.save_pretrained(folder)
        tokenizer.write(folder, chat=False)
        (folder / "preprocessor_config.json").write_text(
            json.dumps(
                dict(
                    image_processor_type="BlipImageProcessor",
                    do_resize=True,
                    size=dict(height=draw.SIZE, width=draw.SIZE),
                    resample=3,
                    image_mean=seeing.MEAN,
                    image_std=seeing.STD,
                ),
                indent=1,
            )
        )
