#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains one of our small vision-language models from scratch and writes its GGUF files.

    tools/train/train.py MODEL --out FOLDER [--minutes M] [--size tiny|small|base] [--data FOLDER]

MODEL: llava, blip2, blip2_half or qwenvl.

The same command again resumes after M minutes, Ctrl-C or a power cut (which loses at most --save-every seconds). Every
batch depends only on --seed and its number, so a run in ten pieces equals an uninterrupted one. FOLDER gets log.jsonl,
checkpoint.pt and, when training is complete, the model in transformers' format (hf/) and as GGUF.

--size small is made for one core of a CPU, base for a GPU; tiny is a quick test of the whole pipeline. --scale 0.1
shortens every stage to a tenth. --data: the folder with image_qa/mnist, for handwritten digits in addition to drawn
ones. Needs torch, transformers, tokenizers, gguf.
"""

import argparse
import importlib
import json
import math
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.train import data, naming, seeing, taught, tokenizer, world

WARMUP, FINAL_LR = 100, 0.05  # steps, at most a quarter of a stage's; share of its learning rate at its end
END_WEIGHT = 0.1  # weight of the loss at an answer's end, which is learned quickly


class Course:
    """A training run: its progress, and all state needed to resume."""

    def __init__(self, args):
        self.args = args
        self.recipe = importlib.import_module(f"tools.train.{args.model}")
        if args.size not in self.recipe.SIZES:
            sys.exit(f"train: {args.model} is not made in size {args.size}: {', '.join(self.recipe.SIZES)}")
        torch.manual_seed(args.seed)
        self.device = torch.device(args.device)
        self.model = self.recipe.Model(args.size).to(self.device)
        self.heads = seeing.Heads(self.model.width, self.recipe.ROWS_EACH).to(self.device)
        self.naming = naming.Naming(tokenizer.Encoder(), tokenizer.VOCAB, self.device)
        self.stages = [replace(s, steps=max(1, round(s.steps * args.scale))) for s in self.recipe.stages(args.size)]
        self.stage, self.step, self.seconds = 0, 0, 0.0
        eyes = [p for m in self.model.eyes() for p in m.parameters()]
        known = {id(p) for p in eyes}
        rest = [p for p in (*self.model.parameters(), *self.heads.parameters()) if id(p) not in known]
        groups = [
            dict(
                params=[p for p in ps if (p.ndim > 1) == decays], weight_decay=0.05 if decays else 0.0, eyes=ps is eyes
            )
            for ps in (eyes, rest)
            for decays in (True, False)
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.98), fused=True)
        self.checkpoint = args.out / "checkpoint.pt"
        taught_by = getattr(self.recipe, "TAUGHT_BY", {}).get(args.size)
        self.teacher = taught.Teacher(taught_by).to(self.device) if taught_by else None
        if start := getattr(self.recipe, "start", None):
            start(self.model)
        if self.checkpoint.is_file():
            self._resume()
        elif self.teacher:
            self.teacher.start(self.model)

    def _setup(self):
        return dict(
            model=self.args.model,
            size=self.args.size,
            seed=self.args.seed,
            scale=self.args.scale,
            digits=bool(self.args.data),
        )

    def save(self):
        """Atomic: a checkpoint is only replaced by a complete one."""
        partial = self.checkpoint.with_suffix(".partial")
        with open(partial, "wb") as f:
            torch.save(
                dict(
                    setup=self._setup(),
                    weights=self.model.state_dict(),
                    heads=self.heads.state_dict(),
                    optimizer=self.optimizer.state_dict(),
                    stage=self.stage,
                    step=self.step,
                    seconds=self.seconds,
                ),
                f,
            )
            f.flush()
            os.fsync(f.fileno())
        os.replace(partial, self.checkpoint)

    def _resume(self):
        at = torch.load(self.checkpoint, map_location=self.device, weights_only=True)
        if at["setup"] != self._setup():
            sys.exit(f"train: {self.checkpoint} is of another run: {at['setup']}; this one is {self._setup()}")
        self.model.load_state_dict(at["weights"])
        self.heads.load_state_dict(at["heads"])
        self.optimizer.load_state_dict(at["optimizer"])
        self.stage, self.step, self.seconds = at["stage"], at["step"], at["seconds"]

    def autocast(self):
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.args.bf16)

    def to_device(self, batch):
        return {k: v.to(self.device, non_blocking=True) if torch.is_tensor(v) else v for k, v in batch.items()}

    def loss(self, stage, batch):
        """(loss, {what: (right, of)})."""
        with self.autocast():
            if stage.mix is None:
                rows = self.model.rows(batch["pixels"])
                loss, right = self.heads.loss(rows, batch["labels"])
                if self.teacher:
                    more, right["taught"] = self.teacher.loss(rows, batch["pixels"])
                    loss = loss + more
                return loss, right
            with torch.set_grad_enabled(torch.is_grad_enabled() and stage.see_lr > 0):
                pixels = batch["pixels"]
                rows = self.model.rows(pixels) if len(pixels) else torch.zeros(0, device=self.device)  # text only
                if batch["seen"] is not None:
                    rows = rows[batch["seen"]]
            hidden, early = self.model.hidden(batch["ids"], rows)
            logits = self.model.logits(hidden.flatten(0, 1)[batch["where"]]).float()
        token, kind = batch["token"], batch["kind"]
        weight = torch.where(kind == data.END, END_WEIGHT, 1.0)
        loss = (F.cross_entropy(logits, token, reduction="none") * weight).sum() / weight.sum()
        hit = logits.argmax(-1) == token
        right = {k: (hit & (kind == i)).sum() for i, k in enumerate((*world.KINDS, "end"))}
        right = {k: (n, (kind == i).sum()) for i, (k, n) in enumerate(right.items())}
        ids, code = batch["ids"], self.model.embeddings()
        clips, right["name"] = self.naming.clips(ids, early, code)
        things, right["thing"] = self.naming.things(early[ids == self.model.image], batch["things"], code)
        asked, right["asked"] = self.naming.asked(ids, early, code)
        loss = loss + naming.WEIGHT * (clips + things + asked)
        if not torch.is_grad_enabled():
            for what, h in zip(batch["details"], hit.tolist()):
                if what:
                    right[what] = right.get(what, (0, 0))[0] + h, right.get(what, (0, 0))[1] + 1
        return loss, right

    def one_step(self, stage, batch):
        batch = self.to_device(batch)
        near_end = 0.5 * (1 + math.cos(math.pi * min(1.0, self.step / stage.steps)))
        warm = min(1.0, (self.step + 1) / min(WARMUP, stage.steps / 4))
        lr = stage.lr * warm * (FINAL_LR + (1 - FINAL_LR) * near_end)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * (stage.see_lr if group["eyes"] else 1.0)
        loss, right = self.loss(stage, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for g in self.optimizer.param_groups for p in g["params"]], 1.0)
        self.optimizer.step()
        return loss.detach(), right

    def steps_of(self, stage, split, seed):
        around = getattr(self.recipe, "AROUND", ("", ""))
        return data.Steps(stage, split, seed, self.model.n_rows, self.recipe.PICTURES, self.args.data, around)

    @torch.no_grad()
    def examine(self, stage, n_batches):
        """Accuracy of greedy answers on held-out streams, given the true earlier answers: {category:
        share}."""
        self.model.eval()
        total = {}
        steps = self.steps_of(replace(stage, steps=n_batches), "held_out", 100 + self.stage)
        for batch in data.load(steps, 0, 0):
            for k, (right, of) in self.loss(stage, self.to_device(batch))[1].items():
                total[k] = [a + int(b) for a, b in zip(total.get(k, (0, 0)), (right, of))]
        self.model.train()
        return {k: round(r / n, 4) for k, (r, n) in total.items() if n} | {
            "n": {k: n for k, (_, n) in total.items() if n}
        }


def train(course, log):
    """Trains until all stages are done (true) or the time is up (false)."""
    began, stop = time.monotonic(), []
    kept = {name: signal.signal(name, lambda *_: stop.append(True)) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _go_on(course, log, began, stop)
    finally:
        for name, handler in kept.items():
            signal.signal(name, handler)


def _go_on(course, log, began, stop):
    args, saved, before = course.args, began, course.seconds
    while course.stage < len(course.stages):
        stage = course.stages[course.stage]
        seen, losses, right = time.monotonic(), [], {}
        for batch in data.load(
            course.steps_of(stage, "train", args.seed * 100 + course.stage), course.step, args.workers
        ):
            loss, hits = course.one_step(stage, batch)
            losses.append(loss)
            for k, (r, n) in hits.items():
                right[k] = [a + b for a, b in zip(right.get(k, (0, 0)), (r, n))]
            course.step += 1
            now = time.monotonic()
            course.seconds = before + now - began
            if course.step % args.log_every == 0 or course.step == stage.steps:
                log(
                    stage=stage.name,
                    step=course.step,
                    of=stage.steps,
                    minutes=round(course.seconds / 60, 2),
                    loss=round(float(torch.stack(losses).mean()), 4),
                    steps_per_s=round(len(losses) / (now - seen), 3),
                    train={k: round(float(r / n), 3) for k, (r, n) in right.items() if n},
                )
                seen, losses, right = now, [], {}
            if course.step % args.examine_every == 0 or course.step == stage.steps:
                log(stage=stage.name, step=course.step, held_out=course.examine(stage, 4))
            out_of_time = bool(stop) or now - began > args.minutes * 60
            if out_of_time or now - saved > args.save_every:
                course.save()
                saved = now
            if out_of_time:
                return False
        course.stage, course.step = course.stage + 1, 0
        course.save()
    return True


def parse(argv=None):
    parser = argparse.ArgumentParser(description="Trains a small vision-language model and writes its GGUF files.")
    parser.add_argument("model", choices=("llava", "blip2", "blip2_half", "qwenvl"))
    parser.add_argument("--out", type=Path, required=True, help="folder of the run; it is continued where there is one")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop after so many; the same command goes on later"
    )
    parser.add_argument("--size", choices=("tiny", "small", "base"), default="small")
    parser.add_argument("--scale", type=float, default=1.0, help="length of every stage, as a share of the recipe's")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--data",
        type=Path,
        help="folder with image_qa/mnist (default: $WEIR_DATA where it is set)",
        default=os.environ.get("WEIR_DATA"),
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-bf16", dest="bf16", action="store_false", help="matrices in 32 bits")
    parser.add_argument("--threads", type=int, help="of the CPU (default: all)")
    parser.add_argument("--workers", type=int, help="processes that make batches (default: 0 on a CPU, else cores - 2)")
    parser.add_argument("--save-every", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--log-every", type=int, default=50, metavar="STEPS")
    parser.add_argument("--examine-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--outtype", default="f16", help="type of the matrices in the GGUF files")
    args = parser.parse_args(argv)
    if args.workers is None:
        args.workers = 0 if args.device == "cpu" else max(1, (os.cpu_count() or 4) - 2)
    if args.threads:
        torch.set_num_threads(args.threads)
    return args


def main():
    args = parse()
    args.out.mkdir(parents=True, exist_ok=True)
    course = Course(args)

    def log(**entry):
        line = json.dumps(entry)
        print(line, flush=True)
        with open(args.out / "log.jsonl", "a", encoding="utf-8") as f:
            f.write(line + "\n")

    if not train(course, log):
        print(
            f"train: stopped in stage {course.stages[course.stage].name}, step {course.step}; the same command goes on",
            file=sys.stderr,
        )
        return
    final = course.stages[-1]
    log(final=course.examine(final, 40), parameters=sum(p.numel() for p in course.model.parameters()))
    import export

    files = export.export(course.recipe, course.model, args.out, args.outtype)
    print(*files, sep="\n")
    if remark := export.too_large(files):
        print(f"train: {remark}", file=sys.stderr)


if __name__ == "__main__":
    main()
