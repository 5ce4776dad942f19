# SPDX-License-Identifier: Apache-2.0
"""Tests of the training recipe: text matches what the programs write, a resumed run equals an uninterrupted one, files
are complete."""

import sys
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
try:
    import gguf
    import jinja2
    import tokenizers  # noqa: F401
    import torch
    import transformers  # noqa: F401
except ImportError as e:
    raise unittest.SkipTest(f"needs torch, transformers, tokenizers, jinja2 and gguf: {e}") from e

from tools.train import blip2, blip2_half, data, export, llava, naming, qwenvl, taught, tokenizer, train, world
from tools.train.data import Stage
from tools.train.world import Mix

MIX = Mix(clips=(2, 3), frames=(1, 2), rounds=(1, 2), kinds=(1.0, 1.0, 1.0, 1.0))


class Text(unittest.TestCase):
    def setUp(self):
        self.encode = tokenizer.Encoder()

    def test_streams_are_written_as_the_chat_template_does(self):
        template = jinja2.Template(tokenizer.CHAT_TEMPLATE)
        for i in range(20):
            clips = world.make_stream("train", 3, i, MIX)
            messages = []
            for clip in clips:
                for r in clip.rounds:
                    lead = f"Clip {clip.number}:" if r.leads and clip.number >= 0 else ""
                    media = tokenizer.IMAGE * (5 * len(clip.frames)) if r.leads else ""
                    messages += [
                        dict(role="user", content=lead + media + r.question),
                        dict(role="assistant", content=r.answer),
                    ]
            text = tokenizer.BOS + template.render(messages=messages, eos_token=tokenizer.EOS)
            row = data.stream_row(clips, self.encode, 5)
            # The line end after the last answer belongs to the next turn.
            self.assertEqual(row.ids, self.encode(text.removesuffix("\n")))
            self.assertEqual(len(row.frames), sum(len(c.frames) for c in clips))

    def test_what_is_due_is_the_answer(self):
        clips = world.make_stream("train", 3, 1, MIX)
        row = data.stream_row(clips, self.encode, 5)
        rounds = [r for c in clips for r in c.rounds]
        self.assertEqual(
            [self.encode.tokenizer.decode([t]) for _, t, kind, _ in row.due if kind != data.END],
            [f" {r.answer}" for r in rounds],
        )
        for at, token, _, _ in row.due:
            self.assertEqual(row.ids[at + 1], token)

    def test_every_token_has_the_number_that_was_named_last(self):
        names = naming.Naming(self.encode, tokenizer.VOCAB, "cpu")
        ids = self.encode("USER: Clip 57:How many are there?\nASSISTANT: 3\nUSER: In clip 9, what colour was it?")
        labels = names.labels(torch.tensor([ids]))[0].tolist()
        at = [ids.index(self.encode(f" {n}")[0]) for n in (57, 3, 9)]
        expected = [-1] * at[0] + [57] * (at[2] - at[0]) + [9] * (len(ids) - at[2])  # the answer 3 names no clip
        self.assertEqual(labels, expected)

    def test_telling_the_number_is_what_the_loss_asks_for(self):
        names = naming.Naming(self.encode, tokenizer.VOCAB, "cpu")
        ids = torch.tensor([self.encode("USER: Clip 57:What shape is it?\nASSISTANT: star")])
        embeddings = torch.randn(tokenizer.VOCAB, 64, generator=torch.Generator().manual_seed(1))
        early = embeddings[names.numbers[57]].expand(1, ids.shape[1], 64)
        loss, (right, of) = names.clips(ids, early, embeddings)
        self.assertLess(float(loss), 0.01)
        self.assertEqual(int(right), int(of))
        loss, (right, _) = names.clips(ids, -early, embeddings)
        self.assertGreater(float(loss), 5)
        self.assertEqual(int(right), 0)

    def test_rows_tell_what_stands_there(self):
        scenes = (world.make_scene(world.rng_of("train", 4, i), MIX, moves=False) for i in range(100))
        scene = next(s for s in scenes if s.subject == "pair")
        things = world.things_at(scene, 4)
        sides = [things[[i for i in range(16) if i % 4 in columns]] for columns in ((0, 1), (2, 3))]
        told = [
            (world.COLOURS.index(colour), world.SHAPES.index(shape), i)
            for i, (colour, shape, *_) in enumerate(scene.objects)
        ]
        for side, thing in zip(sides, told):
            self.assertEqual({tuple(t) for t in side if t[0] >= 0}, {thing})
        self.assertEqual([tuple(t) for t in world.things_in_turn(scene, 5)], told + [(-1, -1, -1)] * 3)
        names = naming.Naming(self.encode, tokenizer.VOCAB, "cpu")
        code = torch.randn(tokenizer.VOCAB, 64, generator=torch.Generator().manual_seed(1))
        things = torch.from_numpy(things)
        rows = sum(code[words][things[:, i]] for i, words in enumerate(names.words))
        loss, (right, of) = names.things(rows, things, code)
        self.assertLess(float(loss), 0.1)
        self.assertEqual((int(right), int(of)), (int((things >= 0).sum()),) * 2)

    def test_tokens_behind_a_word_tell_it(self):
        encode, names = self.encode, naming.Naming(self.encode, tokenizer.VOCAB, "cpu")
        red, circle = (encode(f" {w}")[0] for w in ("red", "circle"))
        other = encode(" number")[0] if len(encode(" number")) == 1 else encode.bos
        row = [other, other, circle, other, encode.image, other, red, encode.eos, other, other, encode.eos, encode.eos]
        ids = torch.tensor([row])
        place = {int(t): i for i, t in enumerate(names.thing_words)}
        wanted = [-1, -1] + [place[circle]] * 2 + [-1, place[circle]] + [place[red]] * 4 + [-1, -1]
        code = torch.randn(tokenizer.VOCAB, 64, generator=torch.Generator().manual_seed(1))
        early = torch.stack([code[names.thing_words[w]] if w >= 0 else torch.zeros(64) for w in wanted])[None]
        loss, (right, of) = names.asked(ids, early, code)
        asked = wanted[:: naming.EVERY]
        self.assertEqual((int(right), int(of)), (sum(w >= 0 for w in asked),) * 2)
        self.assertLess(float(loss), 0.1)
        self.assertEqual(
            names._until_next(names.thing_of[ids], ids).tolist()[0],
            [place[circle] if i == 4 else w for i, w in enumerate(wanted)],
        )

    def test_text_alone_asks_only_for_what_was_told(self):
        mix = Mix(clips=(4, 4), frames=(0, 0), rounds=(1, 1), closing=(3, 3), told=True, numbered=1.0)
        clips = world.make_stream("train", 3, 2, mix)
        row = data.stream_row(clips, self.encode, 5)
        self.assertEqual(row.frames, [])
        self.assertNotIn(self.encode.image, row.ids)
        kinds = {kind for _, _, kind, _ in row.due}
        self.assertEqual(kinds, {world.KINDS.index("recall"), data.END})
        self.assertEqual(len(data.pack([row], self.encode.eos)["pixels"]), 0)

    def test_rectangles_keep_every_row(self):
        streams = [world.make_stream("train", 3, i, MIX) for i in range(3)]
        rows = [data.stream_row(s, self.encode, 5) for s in streams]
        batch = data.pack(rows, self.encode.eos)
        flat = batch["ids"].flatten()
        self.assertEqual(len(batch["where"]), sum(len(r.due) for r in rows))
        self.assertTrue(torch.equal(flat[batch["where"] + 1], batch["token"]))
        self.assertEqual(int((flat == self.encode.image).sum()), 5 * len(batch["pixels"]))


def course(model, out):
    made = train.Course(
        train.parse(
            [
                model,
                "--size",
                "tiny",
                "--out",
                str(out),
                "--device",
                "cpu",
                "--workers",
                "0",
                "--threads",
                "1",
                "--examine-every",
                "100",
            ]
        )
    )
    mix = Mix(clips=(1, 1), rounds=(1, 2)) if made.recipe.PICTURES else MIX
    made.stages = [Stage("see", 2, 2, 1e-3), Stage("look", 2, 2, 1e-3, mix, 0.3), Stage("last", 2, 1, 1e-3, mix, 0.0)]
    if not made.recipe.PICTURES:
        text = Mix(clips=(2, 3), frames=(0, 0), rounds=(1, 1), closing=(2, 2), told=True, numbered=1.0)
        made.stages.insert(2, Stage("name", 2, 2, 1e-3, text, 0.0))
    return made


class Run(unittest.TestCase):
    def test_a_run_in_pieces_is_the_run_in_one(self):
        with tempfile.TemporaryDirectory() as folder:
            entries = []
            log = lambda **entry: entries.append(entry)  # noqa: E731
            whole = course("llava", Path(folder))
            self.assertTrue(train.train(whole, log))
            self.assertEqual([e["stage"] for e in entries if "loss" in e], ["see", "look", "name", "last"])
            self.assertTrue(any("present" in e.get("held_out", {}) for e in entries))
            self.assertTrue(any("name" in e.get("held_out", {}) for e in entries))
        with tempfile.TemporaryDirectory() as folder:
            n = 0
            while True:
                piece = course("llava", Path(folder))
                piece.args.minutes = 0
                n += 1
                if train.train(piece, log):
                    break
            self.assertEqual(n, 9)  # one step each, and a last run with nothing left to do
        for (name, a), b in zip(whole.model.state_dict().items(), piece.model.state_dict().values()):
            self.assertTrue(torch.equal(a, b), name)

    def test_another_run_is_not_continued(self):
        with tempfile.TemporaryDirectory() as folder:
            course("llava", Path(folder)).save()
            with self.assertRaises(SystemExit):
                train.Course(train.parse(["llava", "--size", "tiny", "--out", folder, "--seed", "2"]))

    def test_files_of_both_models(self):
        for recipe, arch in ((llava, "llama"), (blip2, "opt"), (qwenvl, "qwen2vl")):
            with tempfile.TemporaryDirectory() as folder:
                files = export.export(recipe, recipe.Model("tiny"), Path(folder))
                self.assertIsNone(export.too_large(files))
                found = [
                    str(bytes(gguf.GGUFReader(f).fields["general.architecture"].parts[-1]), "ascii") for f in files
                ]
                self.assertEqual(found, [arch, "clip"])
                frames = gguf.GGUFReader(files[1]).fields.get("clip.vision.temporal_patch_size")
                self.assertEqual(int(frames.parts[-1][0]) if frames else None, getattr(recipe, "FRAMES", None))

    def test_every_size_can_be_built_and_committed(self):
        for recipe in (llava, blip2, qwenvl):
            for size in recipe.SIZES:
                with torch.device("meta"):
                    n = sum(p.numel() for p in recipe.Model(size).parameters())
                # q8_0 has 34 bytes for 32 values; base is meant for it, the others for f16.
                self.assertLess(
                    n * (34 / 32 if size == "base" else 2), 0.95 * export.MOST_BYTES, f"{recipe.NAME} {size}"
                )
                self.assertGreater(len(recipe.stages(size)), 2)

    def test_pictures_of_blip2_learn(self):
        """One picture, repeated, is learned."""
        with tempfile.TemporaryDirectory() as folder:
            made = course("blip2", Path(folder))
            stage = replace(made.stages[1], steps=10 * train.WARMUP)
            batch = made.steps_of(stage, "train", 1)[0]
            made.step = train.WARMUP
            losses = [float(made.one_step(stage, batch)[0]) for _ in range(30)]
            self.assertLess(losses[-1], 0.5 * losses[0])


class HalfAQFormer(unittest.TestCase):
    def test_only_the_q_former_learns_between_the_parents_parts(self):
        torch.manual_seed(1)
        model = blip2_half.Model("small")
        blip2_half.start(model)
        learns = {name.split(".")[0] for name, p in model.whole.named_parameters() if p.requires_grad}
        self.assertEqual(learns, {"query_tokens", "qformer", "language_projection"})
        crosses = [hasattr(layer, "crossattention") for layer in model.whole.qformer.encoder.layer]
        self.assertEqual(crosses, [True, False, True, False, True, False])
        with tempfile.TemporaryDirectory() as folder:
            files = export.export(blip2_half, model, Path(folder))
            for file, prefix in zip(files, ("", "mmproj-")):
                made = taught.tensors(file)
                parent = taught.tensors(taught.MODELS / f"{prefix}{blip2_half.PARENT}.gguf")
                same = {name for name in made if name in parent and torch.equal(made[name], parent[name])}
                kept = {name for name in parent if not name.startswith("v.proj_")}
                self.assertLessEqual(kept, same)


class ThreeAxes(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.model = qwenvl.Model("small").eval()

    def test_rows_are_those_of_the_modules(self):
        pixels = torch.randint(0, 256, (3, 64, 64, 3), dtype=torch.uint8)
        patches, grid = self.model.patches(pixels), torch.tensor([[1, 8, 8]] * 3)
        with torch.no_grad():
            wanted = self.model.whole.model.get_image_features(patches.flatten(0, 1), grid).pooler_output
            self.assertLess((self.model.rows(pixels) - torch.stack(wanted)).abs().max(), 1e-5)

    def test_places_are_those_of_the_family(self):
        encode = tokenizer.Encoder(qwenvl.AROUND)
        for i in range(5):
            row = data.stream_row(world.make_stream("train", 3, i, MIX), encode, 16, qwenvl.AROUND)
            ids = torch.tensor([row.ids])
            wanted, _ = self.model.whole.model.get_rope_index(
                ids, (ids == encode.image).int(), torch.tensor([[1, 8, 8]] * len(row.frames))
            )
            self.assertTrue(torch.equal(qwenvl.places(ids, encode.image, 4), wanted))

    def test_text_is_read_as_the_teacher_reads_it(self):
        """To the small part of the norms that does not scale with the width."""
        teacher = taught.Teacher("weir-tiny-llava")
        teacher.start(self.model)
        narrow = llava.Model().eval().whole.model.language_model
        encode = tokenizer.Encoder()
        ids = torch.tensor([encode("USER: Clip 57:How many are there?\nASSISTANT: 3")])
        with torch.no_grad():
            for name, parameter in narrow.named_parameters():
                wide = self.model.whole.model.language_model.get_parameter(name)
                part = wide[tuple(slice(n) for n in parameter.shape)]
                parameter.copy_(part / 0.75**0.5 if parameter.ndim == 1 else part)
            wide = self.model.logits(self.model.hidden(ids, torch.zeros(0, 256))[0])
            told = narrow(input_ids=ids).last_hidden_state @ narrow.embed_tokens.weight.T
        self.assertLess((wide - told).abs().max(), 0.005 * told.abs().max())


if __name__ == "__main__":
    unittest.main()
