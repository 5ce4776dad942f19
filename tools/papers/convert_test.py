# SPDX-License-Identifier: Apache-2.0
"""Every published layout, as a small file of generated pictures: the model of this tree answers what was converted as
well as what its own generator wrote."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools.papers import convert
from tools.papers.entry import ROOT

WEIR = os.environ.get("WEIR", "")
MODEL = ["-m", str(ROOT / "models/weir-tiny-llava.gguf"), "--mmproj", str(ROOT / "models/mmproj-weir-tiny-llava.gguf")]
N = 12


def run(*arguments):
    with contextlib.redirect_stderr(io.StringIO()):
        convert.main([str(one) for one in arguments])


class LayoutTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            import numpy  # noqa: F401
        except ImportError as error:
            raise unittest.SkipTest(str(error)) from error
        cls.root = Path(tempfile.mkdtemp())
        environment = {key: value for key, value in os.environ.items() if key != "WEIR_DATA"}
        made = [
            "--clips",
            str(N),
            "--frames",
            "1",
            "--rounds",
            "1",
            "--kinds",
            "1,0,0,0",
            "--unnamed",
            "--seed",
            "7001",
        ]
        make = [sys.executable, str(ROOT / "tools/train/make_streams.py"), str(cls.root / "own"), *made]
        subprocess.run(make, check=True, env=environment, capture_output=True)
        lines = (cls.root / "own/streams.jsonl").read_text().splitlines()
        cls.samples = [json.loads(line) for line in lines]

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.root)

    def write(self, name, data):
        path = self.root / name
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    def picture(self, sample):
        return sample["frames"][0]

    def out(self, name):
        shutil.rmtree(self.root / name, ignore_errors=True)
        return self.root / name

    def rows(self, out):
        return [json.loads(line) for line in (out / "questions.jsonl").read_text().splitlines()]

    def score(self, suite, data, *flags):
        command = [WEIR, "eval", suite, *MODEL, "--data", str(data), "-t", "1", *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {row["metric"] + "/" + row["kind"]: row["value"] for row in map(json.loads, done.stdout.splitlines())}

    def check(self, out, metric):
        """The converted questions are answered as the generator's own are: golden, since it wrote their answers."""
        if not WEIR:
            self.skipTest("WEIR names no program")
        got = self.score("vqa", out, "--metric", metric)
        own = self.score("vqa", self.root / "own", "--metric", "exact")
        self.assertGreater(own["exact/all"], 0.8)
        self.assertGreaterEqual(got[f"{metric}/all"], own["exact/all"])

    def test_vqa(self):
        # The published pictures are named by numbers.
        for i, sample in enumerate(self.samples):
            shutil.copy(self.root / "own" / self.picture(sample), self.root / "own" / f"COCO_val2014_{i:012d}.jpg")
        questions = [
            {"image_id": i, "question": s["question"], "question_id": 7 * i} for i, s in enumerate(self.samples)
        ]
        answers = [
            {"question_id": 7 * i, "answers": [{"answer": s["answer"], "answer_id": k} for k in range(10)]}
            for i, s in enumerate(self.samples)
        ]
        files = self.write("q.json", {"questions": questions}), self.write("a.json", {"annotations": answers})
        out = self.out("vqa")
        run("vqa", *files, "--images", self.root / "own", "-o", out)
        self.assertEqual(len(self.rows(out)[0]["answers"]), 10)
        self.check(out, "vqa")

    def test_docvqa_and_textvqa(self):
        for i, sample in enumerate(self.samples):
            shutil.copy(self.root / "own" / self.picture(sample), self.root / "own" / f"page{i}.jpg")
        for layout, key, name in (("docvqa", "image", "documents/page{}.jpg"), ("textvqa", "image_id", "page{}")):
            samples = [
                {key: name.format(i), "question": s["question"], "answers": [s["answer"]]}
                for i, s in enumerate(self.samples)
            ]
            out = self.out(layout)
            run(layout, self.write(f"{layout}.json", {"data": samples}), "--images", self.root / "own", "-o", out)
            self.assertEqual(self.rows(out)[3]["image"], "images/page3.jpg")
            self.check(out, "anls")

    def test_ocrbench(self):
        samples = [
            {"image_path": self.picture(s), "question": s["question"], "answers": s["answer"], "type": "Scene Text"}
            for s in self.samples
        ]
        out = self.out("ocrbench")
        run("ocrbench", self.write("ocr.json", samples), "--images", self.root / "own", "-o", out)
        self.check(out, "contains")

    def test_captions(self):
        pictures = [{"id": i, "file_name": self.picture(s)} for i, s in enumerate(self.samples)]
        said = [{"image_id": i, "caption": s["answer"]} for i, s in enumerate(self.samples)] * 2
        out = self.out("nocaps")
        coco = self.write("nocaps.json", {"images": pictures, "annotations": said})
        run("captions", coco, "--images", self.root / "own", "-o", out, "--ask", "What shape is it?", "--n", "3")
        self.assertEqual([row["answers"] for row in self.rows(out)], [[s["answer"]] * 2 for s in self.samples[:3]])
        split = [
            {"filename": self.picture(s), "split": "test" if i else "train", "sentences": [{"raw": "a"}, {"raw": "b"}]}
            for i, s in enumerate(self.samples)
        ]
        out = self.out("flickr")
        run("captions", self.write("karpathy.json", {"images": split}), "--images", self.root / "own", "-o", out)
        self.assertEqual(len(self.rows(out)), N - 1)
        self.assertEqual(self.rows(out)[0]["answers"], ["a", "b"])

    @unittest.skipUnless(shutil.which("ffmpeg"), "needs ffmpeg")
    def test_videos(self):
        for i, sample in enumerate(self.samples):
            film = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-loop", "1", "-t", "2", "-r", "2"]
            picture = ["-i", str(self.root / "own" / self.picture(sample)), "-c:v", "png"]
            for name in (f"vid{i}.avi", f"g{i}.gif"):
                to = [*picture[:2], *(picture[2:] if name.endswith("avi") else []), str(self.root / "own" / name)]
                subprocess.run([*film, *to], check=True)
        questions = [
            {"video_id": i, "question": s["question"], "answer": s["answer"]} for i, s in enumerate(self.samples)
        ]
        table = "gif_name\tquestion\tanswer\n" + "".join(
            f"g{i}\t{s['question']}\t{s['answer']}\n" for i, s in enumerate(self.samples)
        )
        msvd, tgif = self.out("msvd"), self.out("tgif")
        run("msvd", self.write("msvd.json", questions), "--videos", self.root / "own", "-o", msvd)
        run("tgif", self.write("tgif.tsv", table), "--videos", self.root / "own", "-o", tgif)
        for out in (msvd, tgif):
            rows = self.rows(out)
            self.assertEqual([row["clip"] for row in rows], list(range(N)))
            self.assertEqual(len(rows[0]["frames"]), 2)
        if not WEIR:
            self.skipTest("WEIR names no program")
        got = self.score("videoqa", msvd, "--policy", "full", "--rounds", str(N))
        self.assertGreater(got["accuracy/all"], 0.7)

    def film(self, name, seconds):
        """Frames of that many seconds, each the picture of the next sample."""
        pictures = self.root / f"{name}.frames"
        pictures.mkdir(exist_ok=True)
        for i in range(seconds):
            shutil.copy(self.root / "own" / self.picture(self.samples[i]), pictures / f"{i:03}.ppm")
        to = self.root / "films" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        make = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-framerate", "1", "-i", str(pictures / "%03d.ppm")]
        subprocess.run([*make, "-c:v", "png", "-f", "avi", str(to)], check=True)

    def tasks(self, layout, data, *more):
        out = self.out(layout)
        run(layout, self.write(f"{layout}.json", data), *more, "--videos", self.root / "films", "-o", out)
        if WEIR:
            got = self.score("videotasks", out, "--policy", "full;last_frames", "--pot", "256", "--answer", "4")
            self.assertIn("accuracy/all", got)
        return self.rows(out)

    @unittest.skipUnless(shutil.which("ffmpeg"), "needs ffmpeg")
    def test_ovo(self):
        self.film("a.avi", 6)
        self.film("b.avi", 3)
        choice = {"task": "EPM", "video": "a.avi", "question": "Which?", "options": ["x", "y"], "gt": 1}
        tests = [{"realtime": 3.0, "count": 2}, {"realtime": 1, "count": 0}]
        rows = self.tasks(
            "ovo",
            [
                {"id": 0, "realtime": 4, **choice},
                {"id": 1, "task": "REC", "video": "b.avi", "activity": "jumping", "test_info": tests},
                {"id": 2, "realtime": 2, **choice, "task": "OCR"},
                {"id": 3, "task": "SSR", "video": "a.avi", "test_info": [{"realtime": 4, "step": "cut", "type": 1}]},
                {"id": 4, "task": "CRR", "video": "a.avi", "question": "?", "test_info": [{"realtime": 9, "type": 0}]},
            ],
        )
        self.assertEqual([row["kind"] for row in rows], ["OCR", "EPM", "SSR", "CRR", "REC", "REC"])
        self.assertEqual([row["stream"] for row in rows], [0, 0, 0, 0, 1, 1])
        self.assertEqual([len(row.get("frames", [])) for row in rows], [2, 2, 0, 2, 1, 2])
        self.assertEqual([row["answer"] for row in rows], ["B", "B", "Yes", "No", "0", "2"])
        self.assertEqual([row["metric"] for row in rows], ["letter"] * 2 + ["yes_no"] * 2 + ["digits"] * 2)
        self.assertIn("A. x; B. y;", rows[0]["question"])
        self.assertTrue(all(row["aside"] for row in rows))

    @unittest.skipUnless(shutil.which("ffmpeg"), "needs ffmpeg")
    def test_streamingbench(self):
        self.film("a.avi", 10)
        asked = {"task_type": "OP", "question": "Which?", "time_stamp": "00:00:03", "answer": "C"}
        asked["options"] = ["A. p", "B. q", "C. r", "D. s"]
        active = {"task_type": "PO", "question": "When it is red, output 1.", "time_stamp": "00:00:01"}
        active |= {"ground_truth_time_stamp": "00:00:04", "ground_truth_output": "1"}
        path = {"video_path": "./videos/a.avi"}
        rows = self.tasks("streamingbench", [{**path, "questions": [asked]}, [{**path, "questions": [active]}]])
        self.assertEqual([row["kind"] for row in rows if "poll" not in row], ["OP"])
        polls = [row for row in rows if "poll" in row]
        self.assertEqual([row["answer"] for row in polls], ["yes"] * 5 + ["no"] * 2)
        self.assertEqual({row["poll"] for row in polls}, {0})
        self.assertEqual(sum(len(row.get("frames", [])) for row in rows), 8)

    @unittest.skipUnless(shutil.which("ffmpeg"), "needs ffmpeg")
    def test_egoschema(self):
        self.film("u1.avi", 4)
        sample = {"q_uid": "u1", "question": "What for?", **{f"option {i}": f"o{i}" for i in range(5)}}
        answers = self.write("answers.json", {"u1": 3})
        rows = self.tasks("egoschema", [sample, {**sample, "q_uid": "u2"}], answers, "--video-name", "{id}.avi")
        self.assertEqual([(row["answer"], len(row["frames"])) for row in rows], [("D", 4)])

    def test_longbench(self):
        folder = self.root / "longbench"
        folder.mkdir(exist_ok=True)
        sample = {"context": "a {b} c", "input": "which?", "answers": ["x"], "all_classes": ["x", "y"]}
        for task in ("trec", "lcc", "dureader"):
            (folder / f"{task}.jsonl").write_text(json.dumps(sample) + "\n")
        prompts = self.write("prompts.json", {"trec": "Read {context}\nNow {input}", "lcc": "{context}{input}"})
        lengths = self.write("lengths.json", {"trec": 64, "lcc": 64})
        run("longbench", folder, "-o", self.root / "lb.jsonl", "--prompts", prompts, "--lengths", lengths)
        rows = {row["dataset"]: row for row in map(json.loads, (self.root / "lb.jsonl").read_text().splitlines())}
        self.assertEqual(sorted(rows), ["lcc", "trec"])
        self.assertEqual(rows["trec"]["prompt"], "Read a {b} c\nNow which?")
        self.assertEqual(rows["trec"]["all_classes"], ["x", "y"])
        self.assertEqual((rows["lcc"]["metric"], rows["lcc"]["max_new_tokens"]), ("code_sim", 64))
        if WEIR:
            tiny = ["-m", str(ROOT / "tests/golden/models/llama.gguf"), "--policy", "full", "-t", "1"]
            command = [WEIR, "eval", "longbench", *tiny, "-f", str(self.root / "lb.jsonl")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(done.stdout.splitlines()), 2)

    def test_what_is_missing_is_named(self):
        for broken, what in (
            ([{"image_path": "nowhere.png", "question": "q", "answers": "a"}], "nowhere.png is not there"),
            ([{"image_path": "../x", "question": "q", "answers": "a"}], "not inside"),
            ([{"question": "q", "answers": "a"}], "sample 0: no `image_path`"),
            ([], "no sample"),
            ({}, "expected a list"),
        ):
            out = self.out("broken")
            with self.assertRaises(SystemExit) as failed:
                run("ocrbench", self.write("broken.json", broken), "--images", self.root / "own", "-o", out)
            self.assertIn(what, str(failed.exception))
            self.assertFalse((out / "questions.jsonl").exists())


if __name__ == "__main__":
    unittest.main()
