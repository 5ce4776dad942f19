# SPDX-License-Identifier: Apache-2.0
"""The questions of weir-tiny-log: asked as `weir watch` asks, answered as its lines say, and blind to each other."""

import random
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
try:
    import gguf
    import tokenizers  # noqa: F401
    import torch
    import transformers  # noqa: F401
except ImportError as e:
    raise unittest.SkipTest(f"needs torch, transformers, tokenizers and gguf: {e}") from e

from tools.train import log_watcher, tokenizer
from tools.watch import logs

ROOT = Path(__file__).resolve().parents[2]


class QuestionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.coder = log_watcher.build_tokenizer()
        cls.batches = log_watcher.Batches(cls.coder, 1)

    def test_the_words_are_those_of_the_rules(self):
        source = (ROOT / "src/rules/rule_words.cc").read_text()
        before, after = log_watcher.ASKED.split("{}")
        self.assertIn(f'"{before.strip()} "', source)
        self.assertIn('"\\n' + after.removesuffix("\nASSISTANT:").strip() + '"', source)
        self.assertIn("\\nASSISTANT:".removeprefix("\\n"), tokenizer.CHAT_TEMPLATE)
        for kind, rule in logs.rules().items():
            self.assertEqual(log_watcher.WORDS[kind][0], rule)

    def test_answers_are_what_the_last_lines_say(self):
        # A line's kind from its words alone.
        signs = {"disk": ("failed command", "I/O error", "unreadable"), "memory": ("oom", "OOM", "Out of memory")}
        rng, seen = random.Random(5), {True: 0, False: 0}
        lines = list(logs.make_log("train 7", 1200, 60, 0.01))
        for _ in range(10):
            ids, _, owner, cut, targets = self.batches.sequence(rng, lines, 512)
            for question in range(1, max(owner) + 1):
                own = [i for i, o in enumerate(owner) if o == question]
                text = self.coder.decode([ids[i] for i in own])
                kind = next((k for k in signs if any(words in text for words in log_watcher.WORDS[k])), None)
                if kind is None:
                    continue
                log = self.coder.decode(ids[: cut[own[0]]]).split("\n")[:-1][-log_watcher.LATEST :]
                n = sum(any(sign in line for sign in signs[kind]) for line in log)
                yes = targets[own[-1]] == self.batches.answers[1][0]
                self.assertTrue(n >= log_watcher.YES if yes else n <= log_watcher.NO, f"{text} {log}")
                seen[yes] += 1
        self.assertGreater(min(seen.values()), 5, seen)

    def test_a_question_sees_its_part_of_the_log_and_itself(self):
        stage = log_watcher.Stage("", 1, 2, 128, 1e-3)
        ids, positions, mask, targets, owner = self.batches.make(stage, 0, 0)
        torch.manual_seed(1)
        with tempfile.TemporaryDirectory() as folder:
            run = log_watcher.Run(parse(folder))
        model = run.model.eval()

        def answer(ids, positions, mask, at):
            bias = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)[:, None]
            return model.model(input_ids=ids, position_ids=positions, attention_mask=bias, use_cache=False)[0][0, at]

        # The same question, alone behind its part of the log.
        own = (owner[0] == 1).nonzero()[:, 0]
        n = positions[0, own[0]]
        alone = torch.cat([ids[0, :n], ids[0, own]])[None]
        causal = torch.ones(alone.shape[1], alone.shape[1]).tril().bool()[None]
        with torch.no_grad():
            one = answer(ids[:1], positions[:1], mask[:1], own[-1])
            other = answer(alone, torch.arange(alone.shape[1])[None], causal, -1)
        self.assertLess((one - other).abs().max(), 1e-4)
        self.assertGreaterEqual(int(targets[0, own[-1]]), 0)

    def test_lines_of_the_same_shape_are_left_out(self):
        texts = ["1:00 a b7", "2:00 a c8", "3:00 a b", "4:00 a d9", "5:00 a b-1"]
        lines = [logs.Line(text, None, None) for text in texts]
        self.assertEqual([line.text for line in log_watcher.without_same(lines, 3)], [texts[i] for i in (0, 2, 3, 4)])


def parse(folder):
    args = log_watcher.parse(["--out", folder, "--scale", "0.003"])
    args.out.mkdir(parents=True, exist_ok=True)
    return args


class RunTest(unittest.TestCase):
    def test_a_run_in_pieces_is_the_run_in_one(self):
        kept = log_watcher.STAGES
        log_watcher.STAGES = (log_watcher.Stage("a", 600, 2, 64, 1e-3), log_watcher.Stage("b", 400, 1, 128, 1e-3))
        try:
            with tempfile.TemporaryDirectory() as folder:
                whole = log_watcher.Run(parse(folder))
                self.assertTrue(whole.train(lambda **_: None))
                held_out = whole.examine(1)
                self.assertEqual(sorted(held_out), ["no", "yes"])
                self.assertGreater(min(n for _, n in held_out.values()), 0)
                path = whole.export()
                arch = gguf.GGUFReader(path).fields["general.architecture"]
                self.assertEqual(str(bytes(arch.parts[-1]), "ascii"), "llama")
            with tempfile.TemporaryDirectory() as folder:
                n = 1
                while True:
                    piece = log_watcher.Run(parse(folder))
                    piece.args.minutes = 0
                    if piece.train(lambda **_: None):
                        break
                    n += 1
                self.assertEqual(n, 4)
        finally:
            log_watcher.STAGES = kept
        for (name, a), b in zip(whole.model.state_dict().items(), piece.model.state_dict().values()):
            self.assertTrue(torch.equal(a, b), name)


if __name__ == "__main__":
    unittest.main()
