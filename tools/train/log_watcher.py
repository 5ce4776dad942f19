#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains weir-tiny-log, a small llama that answers yes or no about a log, and writes its GGUF file.

    tools/train/log_watcher.py --out FOLDER [--minutes M] [--threads N] [--scale 0.1]

The logs are those of tools/watch/logs.py, of seeds that measurements do not use, whole or without the lines that
`weir watch --skip-same` leaves out. Behind a log stand questions in the words in which rules (`--when`) are asked, each
at a place of its own: it sees the log up to there, and no other question, as a question that is asked aside does. The
answer is yes where at least YES of the last LATEST lines are of the kind that the rule is about, no where at most NO
are, and what lies between is not asked. The same command resumes; every batch depends on its number alone. Needs torch,
transformers, tokenizers, safetensors, gguf.
"""

import argparse
import json
import math
import os
import random
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.convert import hf_to_gguf
from tools.train import tokenizer
from tools.watch import logs

NAME, VOCAB, CONTEXT = "weir-tiny-log", 1024, 4096
WIDTH, BLOCKS, HEADS, KV_HEADS, FF = 128, 3, 2, 1, 256
LATEST, YES, NO = 10, 3, 1  # lines
LOG_WEIGHT = 0.2  # of the loss at the log's own tokens
ASKED = "\n\nIs the following true at this moment? {}\nAnswer with yes or no.\nASSISTANT:"  # src/rules/rule_words.cc
WORDS = {  # other words for a rule; the first is the one of tools/watch/logs.py
    "disk": ("a disk is failing", "a drive is broken", "there are disk errors", "a disk fails"),
    "memory": (
        "a process was killed because memory ran out",
        "the machine is out of memory",
        "memory has run out",
        "something was killed for want of memory",
    ),
    "login": (
        "somebody tries to guess passwords",
        "somebody tries to break in",
        "there are many failed logins",
        "an attack on the logins is going on",
    ),
    "database": (
        "the database cannot be reached",
        "the database is down",
        "there is no connection to the database",
        "requests fail for want of a database",
    ),
}


@dataclass
class Stage:
    name: str
    steps: int
    batch: int
    tokens: int  # of a log
    lr: float


STAGES = (
    Stage("kinds", 500, 32, 128, 2e-3),  # so short that nearly all of it counts
    Stage("lines", 300, 16, 320, 2e-3),
    Stage("pot", 200, 4, 1024, 1e-3),
)


def build_tokenizer():
    """Trained on logs and questions; deterministic."""
    texts = [line.text + "\n" for line in logs.make_log("vocabulary", 20000, 60)]
    texts += [
        "USER: " + ASKED.format(words) + " " + answer
        for of in WORDS.values()
        for words in of
        for answer in ("yes", "no")
    ] * 50
    return tokenizer.train(texts, VOCAB)


def same_shape(text):
    """What is left of a line that is compared by --skip-same: words with digits are all alike."""
    words = "".join(c if c.isascii() and c.isalnum() else f"\0{c}\0" for c in text).split("\0")
    return tuple("0" if any(c.isdigit() for c in word) else word for word in words)


def without_same(lines, window):
    read = {}
    for number, line in enumerate(lines):
        shape = same_shape(line.text)
        if number - read.get(shape, -window) >= window:
            read[shape] = number
            yield line


class Batches:
    """Batch `number` of a stage: tokens, positions, the mask, and what each row of logits should be."""

    QUESTIONS = 12

    def __init__(self, coder, seed):
        self.coder, self.seed = coder, seed
        ids = lambda text: coder.encode(text, add_special_tokens=False).ids  # noqa: E731
        self.ids = ids
        self.questions = {kind: [ids(ASKED.format(words)) for words in of] for kind, of in WORDS.items()}
        self.answers = [ids(" no"), ids(" yes")]
        assert all(len(a) == 1 for a in self.answers)
        self.begin = [coder.token_to_id(tokenizer.BOS), *ids("USER: ")]

    def log(self, rng):
        """Lines as they are read."""
        between, strays = rng.choice((30, 60, 120, 240)), rng.choice((0.0, 0.0, 0.005, 0.02))
        seed = f"train {rng.getrandbits(40)}"
        if rng.random() < 0.6:
            return list(logs.make_log(seed, 1200, between, strays))
        # No strays: they would hide the incidents' own lines.
        return list(without_same(logs.make_log(seed, 6000, 4 * between), rng.randint(100, 2000)))

    def sequence(self, rng, lines, n_tokens):
        """(tokens, positions, ends of what each token sees [first, last) beside its own question, targets)."""
        n_lines = n_tokens // 18
        first = rng.randrange(max(1, len(lines) - n_lines))
        for _ in range(10):  # mostly one with an incident
            if rng.random() < 0.2 or any(line.kind for line in lines[first : first + n_lines]):
                break
            first = rng.randrange(max(1, len(lines) - n_lines))
        ids = list(self.begin) if rng.random() < 0.3 else []
        ends, kinds = [], []
        for line in lines[first:]:
            more = self.ids(line.text + "\n")
            if len(ids) + len(more) > n_tokens:
                break
            ids += more
            ends.append(len(ids))
            kinds.append(line.kind)
        targets = [-100] * len(ids)
        for i in range(len(ids) - 1):
            targets[i] = ids[i + 1]
        positions, owner, cut = list(range(len(ids))), [0] * len(ids), [0] * len(ids)
        for question in range(1, self.QUESTIONS + 1):
            wanted, found = rng.random() < 0.6, None
            for _ in range(40):
                at, kind = rng.randrange(len(ends)), rng.choice(sorted(WORDS))
                count = kinds[max(0, at + 1 - LATEST) : at + 1].count(kind)
                if count >= YES if wanted else count <= NO:
                    found = at, kind
                    break
            if found is None:
                continue
            at, kind = found
            words = rng.choice(self.questions[kind]) if rng.random() < 0.5 else self.questions[kind][0]
            ids += words
            positions += range(ends[at], ends[at] + len(words))
            owner += [question] * len(words)
            cut += [ends[at]] * len(words)
            targets += [-100] * (len(words) - 1) + [self.answers[wanted][0]]
        return ids, positions, owner, cut, targets

    def make(self, stage, index, number):
        rng = random.Random(f"{self.seed} {index} {number}")
        rows, lines = [], []
        for i in range(stage.batch):
            if i % 4 == 0:
                lines = self.log(rng)
            rows.append(self.sequence(rng, lines, stage.tokens))
        most = max(len(row[0]) for row in rows)
        padded = [
            torch.tensor([row[k] + [fill] * (most - len(row[k])) for row in rows])
            for k, fill in enumerate((0, 0, -1, 0, -100))
        ]
        ids, positions, owner, cut, targets = padded
        at = torch.arange(most)
        causal = at[None, :, None] >= at[None, None, :]
        own = owner[:, :, None] == owner[:, None, :]
        before = (owner[:, None, :] == 0) & (owner[:, :, None] > 0) & (at[None, None, :] < cut[:, :, None])
        return ids, positions, causal & (own | before), targets, owner


class Run:
    def __init__(self, args):
        self.args = args
        torch.manual_seed(args.seed)
        self.coder = build_tokenizer()
        config = transformers.LlamaConfig(
            vocab_size=VOCAB,
            hidden_size=WIDTH,
            intermediate_size=FF,
            num_hidden_layers=BLOCKS,
            num_attention_heads=HEADS,
            num_key_value_heads=KV_HEADS,
            head_dim=WIDTH // HEADS,
            max_position_embeddings=CONTEXT,
            rms_norm_eps=1e-5,
            tie_word_embeddings=True,
            bos_token_id=0,
            eos_token_id=1,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0),
        )
        self.model = transformers.LlamaForCausalLM(config)
        torch.nn.init.normal_(self.model.model.embed_tokens.weight, std=0.1)
        self.batches = Batches(self.coder, args.seed)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, betas=(0.9, 0.98), weight_decay=0.02)
        self.stage = self.step = 0
        self.checkpoint = args.out / "checkpoint.pt"
        if self.checkpoint.is_file():
            at = torch.load(self.checkpoint, weights_only=True)
            if (at["seed"], at["scale"]) != (args.seed, args.scale):
                sys.exit(f"log_watcher: {self.checkpoint} is of another run; give it another --out")
            self.model.load_state_dict(at["weights"])
            self.optimizer.load_state_dict(at["optimizer"])
            self.stage, self.step = at["stage"], at["step"]

    def save(self):
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(
            dict(
                seed=self.args.seed,
                scale=self.args.scale,
                weights=self.model.state_dict(),
                optimizer=self.optimizer.state_dict(),
                stage=self.stage,
                step=self.step,
            ),
            partial,
        )
        os.replace(partial, self.checkpoint)

    @torch.no_grad()
    def examine(self, n_batches=40):
        """Shares of right answers to questions about other logs, as long as a pot: {answer: (share, n)}."""
        batches = Batches(self.coder, f"held out {self.args.seed}")
        total = {}
        for number in range(n_batches):
            ids, positions, mask, targets, owner = batches.make(STAGES[-1], 0, number)
            asked = (owner > 0) & (targets >= 0)
            said, due = self.logits(ids, positions, mask, asked).argmax(-1), targets[asked]
            for words, (answer,) in zip(("no", "yes"), batches.answers):
                right, n = total.get(words, (0, 0))
                of = due == answer
                total[words] = right + int((said == due)[of].sum()), n + int(of.sum())
        return {words: (right / n, n) for words, (right, n) in total.items()}

    def logits(self, ids, positions, mask, where):
        bias = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)[:, None]
        hidden = self.model.model(input_ids=ids, position_ids=positions, attention_mask=bias, use_cache=False)
        return self.model.lm_head(hidden.last_hidden_state[where])

    def loss(self, batch):
        """(loss, answers that are right, answers)."""
        ids, positions, mask, targets, owner = batch
        due = targets >= 0
        logits = self.logits(ids, positions, mask, due)
        target, answer = targets[due], owner[due] > 0
        each = F.cross_entropy(logits, target, reduction="none")
        right = (logits[answer].argmax(-1) == target[answer]).sum().item()
        return each[answer].mean() + LOG_WEIGHT * each[~answer].mean(), right, int(answer.sum())

    def train(self, log):
        began = time.monotonic()
        for index in range(self.stage, len(STAGES)):
            stage, self.stage = STAGES[index], index
            steps, right, asked, losses = max(1, round(stage.steps * self.args.scale)), 0, 0, []
            while self.step < steps:
                near_end = 0.5 * (1 + math.cos(math.pi * self.step / steps))
                for group in self.optimizer.param_groups:
                    group["lr"] = stage.lr * min(1.0, (self.step + 1) / 50) * (0.05 + 0.95 * near_end)
                loss, hits, n = self.loss(self.batches.make(stage, index, self.step))
                self.optimizer.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.step += 1
                losses.append(loss.item())
                right, asked = right + hits, asked + n
                if self.step % 25 == 0 or self.step == steps:
                    share = right / max(1, asked)
                    log(stage=stage.name, step=self.step, loss=sum(losses) / len(losses), right=share, n=asked,
                        seconds=time.monotonic() - began)  # fmt: skip
                    right, asked, losses = 0, 0, []
                    self.save()
                if time.monotonic() - began > 60 * self.args.minutes:
                    self.save()
                    return False
            self.step = 0
        self.stage = len(STAGES)
        self.save()
        return True

    def export(self):
        folder = self.args.out / "hf"
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save_pretrained(folder)
        tokenizer.write_files(self.coder, folder)
        path = self.args.out / f"{NAME}.gguf"
        hf_to_gguf.convert_folder(folder, path, self.args.outtype, name=NAME)
        return path


def parse(argv=None):
    parser = argparse.ArgumentParser(description="Trains weir-tiny-log.")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="share of every stage's steps")
    parser.add_argument("--outtype", default="f16")
    return parser.parse_args(argv)


def main(argv=None):
    args = parse(argv)
    torch.set_num_threads(args.threads)
    args.out.mkdir(parents=True, exist_ok=True)
    run = Run(args)

    def log(**row):
        text = json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()})
        print(text, flush=True)
        with open(args.out / "log.jsonl", "a") as f:
            f.write(text + "\n")

    if run.train(log):
        log(held_out=run.examine())
        print(run.export())


if __name__ == "__main__":
    main()
