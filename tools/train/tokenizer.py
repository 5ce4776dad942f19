# SPDX-License-Identifier: Apache-2.0
"""The small models' tokenizer: byte-level BPE like GPT-2's, with every word and clip number of the world as one token.

It is trained by the `tokenizers` package on the world's own words, and any other text falls back to
bytes. The chat format is Vicuna's, as in LLaVA-1.5, with each turn on its own line.
"""

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from tools.train import world

BOS, EOS, IMAGE = "<s>", "</s>", "<image>"  # ids 0, 1, 2
VOCAB = 864  # rows of the embedding; the converter pads unused ones
CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}{{ 'USER: ' + message['content'] + '\\n' }}"
    "{% elif message['role'] == 'assistant' %}{{ 'ASSISTANT: ' + message['content'] + eos_token + '\\n' }}"
    "{% else %}{{ message['content'] + '\\n\\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
# A BLIP-2 prompt is one question after the picture's rows.
QUESTION, ANSWER = "Question: ", " Answer:"


def turn(clip, question, leads):
    """(text before the frames, text after them) of a round's user turn, in the chat format."""
    if not leads:
        return f"USER: {question}\nASSISTANT:", None
    return "USER: " + (f"Clip {clip.number}:" if clip.number >= 0 else ""), f"{question}\nASSISTANT:"


def train(texts, vocab):
    """A byte-level BPE of `vocab` tokens; deterministic, since nothing is random."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        show_progress=False,
        special_tokens=[AddedToken(t, special=True) for t in (BOS, EOS, IMAGE)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build(words=()):
    """That of the world, with `words` as single tokens behind it."""
    texts, answers, numbers = world.vocabulary()
    frame = ["USER: Clip 1:", "\nASSISTANT: red", QUESTION + "What", ANSWER]
    # Numbers are rarer: if their pieces were merged first, words would run out of room.
    tokenizer = train((texts + answers + frame) * 20 + numbers * 3, VOCAB)
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in words])
    return tokenizer


def numbers(words):
    """Their ids."""
    tokenizer = build(words)
    return [tokenizer.token_to_id(word) for word in words]


def write_files(tokenizer, folder, chat=True):
    """Writes tokenizer.json and tokenizer_config.json, as tools/convert/hf_to_gguf.py reads them; `chat`: with the chat
    format."""
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = dict(
        tokenizer_class="PreTrainedTokenizerFast", bos_token=BOS, eos_token=EOS, add_bos_token=True, add_eos_token=False
    )
    if chat:
        settings["chat_template"] = CHAT_TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def write(folder, chat=True, words=()):
    """The world's tokenizer as files."""
    write_files(build(words), folder, chat)


class Encoder:
    """Texts to ids, with a cache: the world uses the same few thousand texts."""

    def __init__(self, words=()):
        self.tokenizer = build(words)
        self._ids = {}
        self.bos, self.eos, self.image = (self.tokenizer.token_to_id(t) for t in (BOS, EOS, IMAGE))

    def __call__(self, text):
        ids = self._ids.get(text)
        if ids is None:
            ids = self._ids[text] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids
