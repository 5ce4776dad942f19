#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Published data sets in the layouts that `weir eval` reads (docs/evaluation.md). Downloads nothing.

    tools/papers/convert.py longbench FOLDER -o FILE.jsonl --prompts dataset2prompt.json --lengths dataset2maxlen.json
    tools/papers/convert.py vqa QUESTIONS.json ANNOTATIONS.json --images FOLDER -o OUT
    tools/papers/convert.py textvqa|docvqa|ocrbench FILE.json --images FOLDER -o OUT
    tools/papers/convert.py captions FILE.json --images FOLDER -o OUT     # Nocaps; Flickr30k in Karpathy's split
    tools/papers/convert.py msvd|msrvtt|vstream FILE.json --videos FOLDER -o OUT
    tools/papers/convert.py tgif FILE.csv --videos FOLDER -o OUT
    tools/papers/convert.py ovo|streamingbench FILE.json --videos FOLDER -o OUT      # for `weir eval videotasks`
    tools/papers/convert.py egoschema QUESTIONS.json ANSWERS.json --videos FOLDER -o OUT

OUT is a folder with questions.jsonl and, beside it, a link to the folder of pictures, or a frame of every second of the
videos (--fps), written with ffmpeg. LongEval's cases need no converter: `weir eval lines --file`. --n takes the first N
samples. What a sample lacks is an error that names it.
"""

import argparse
import csv
import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.papers import video_tasks

# LongBench's metric of every task; answers of some tasks are compared as words of Chinese, which nothing here does.
LONGBENCH = {
    "qa_f1": "narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique triviaqa",
    "rouge": "gov_report qmsum multi_news samsum",
    "classification": "trec lsht",
    "retrieval": "passage_retrieval_en",
    "retrieval_zh": "passage_retrieval_zh",
    "count": "passage_count",
    "code_sim": "lcc repobench-p",
}
METRIC_OF = {task: metric for metric, tasks in LONGBENCH.items() for task in tasks.split()}
CHINESE = ("multifieldqa_zh", "dureader", "vcsum")


class LayoutError(ValueError):
    """A file that is not laid out as its data set is."""


def load(path):
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise LayoutError(f"{path}: not JSON: {error}") from error


def field(sample, key, where):
    if not isinstance(sample, dict) or key not in sample:
        raise LayoutError(f"{where}: no `{key}`")
    return sample[key]


def records(path, key=None):
    """(where, sample) of a list, or of the list under a key."""
    data = load(path)
    if key is not None:
        data = field(data, key, path)
    if not isinstance(data, list):
        raise LayoutError(f"{path}: expected a list of samples")
    return [(f"{path}: sample {i}", sample) for i, sample in enumerate(data)]


def texts(value, where):
    value = [value] if isinstance(value, (str, int, float)) else value
    if not isinstance(value, list) or not value:
        raise LayoutError(f"{where}: expected an answer or a list of them")
    return [str(one) for one in value]


class Folder:
    """Files of a folder, which must exist and lie inside it."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()

    def path(self, name, where):
        path = self.folder / name
        if self.folder not in path.resolve().parents:
            raise LayoutError(f"{where}: {name} is not inside {self.folder}")
        if not path.is_file():
            raise LayoutError(f"{where}: {path} is not there")
        return path


class Pictures(Folder):
    """Names of pictures by way of OUT/images, a link to their folder: `weir eval` reads nothing outside OUT."""

    def __init__(self, args):
        super().__init__(args.images)
        link = Path(args.out) / "images"
        if not link.is_symlink():
            link.symlink_to(self.folder, target_is_directory=True)
        if link.resolve() != self.folder:
            raise LayoutError(f"{link} leads to {link.resolve()}, not to {self.folder}: remove it")

    def __call__(self, name, where):
        self.path(name, where)
        return f"images/{name}"


def longbench(args):
    prompts, lengths = load(args.prompts), load(args.lengths)
    for path in sorted(Path(args.file).glob("*.jsonl")):
        task = path.stem.removesuffix("_e")
        if task in CHINESE:
            print(f"convert: {path.name} left out: its answers are compared as Chinese words", file=sys.stderr)
            continue
        if task not in METRIC_OF:
            raise LayoutError(f"{path}: no task of LongBench is called {task}")
        for i, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            where = f"{path}:{i}"
            sample = json.loads(line)
            form = field(prompts, task, args.prompts)
            for name in ("context", "input"):  # one after the other: a context may have braces in it
                field(sample, name, where)
            before, _, rest = form.partition("{context}")
            prompt = before.replace("{input}", sample["input"])
            if rest or "{context}" in form:
                prompt += sample["context"] + rest.replace("{input}", sample["input"])
            row = {"dataset": task, "metric": METRIC_OF[task], "prompt": prompt}
            row |= {"answers": texts(field(sample, "answers", where), where)}
            row |= {"max_new_tokens": field(lengths, task, args.lengths)}
            if METRIC_OF[task] == "classification":
                row["all_classes"] = texts(field(sample, "all_classes", where), where)
            yield row


def vqa(args):
    """VQAv2: ten answers of every question are in another file."""
    picture = Pictures(args)
    answers = {}
    for where, sample in records(args.annotations, "annotations"):
        given = field(sample, "answers", where)
        answers[field(sample, "question_id", where)] = [field(one, "answer", where) for one in given]
    for where, sample in records(args.file, "questions"):
        name = args.image_name.format(id=field(sample, "image_id", where))
        gold = answers.get(field(sample, "question_id", where))
        if gold is None:
            raise LayoutError(f"{where}: no answers in {args.annotations}")
        yield {"image": picture(name, where), "question": field(sample, "question", where), "answers": gold}


def textvqa(args):
    picture = Pictures(args)
    for where, sample in records(args.file, "data"):
        name = field(sample, "image_id", where) + ".jpg"
        gold = texts(field(sample, "answers", where), where)
        yield {"image": picture(name, where), "question": field(sample, "question", where), "answers": gold}


def docvqa(args):
    picture = Pictures(args)
    for where, sample in records(args.file, "data"):
        # Published as documents/NAME.png; the folder is the one that holds them, or the one above.
        name = field(sample, "image", where)
        name = name if (picture.folder / name).is_file() else name.rpartition("/")[2]
        gold = texts(field(sample, "answers", where), where)
        yield {"image": picture(name, where), "question": field(sample, "question", where), "answers": gold}


def ocrbench(args):
    picture = Pictures(args)
    for where, sample in records(args.file):
        gold = texts(field(sample, "answers", where), where)
        row = {
            "image": picture(field(sample, "image_path", where), where),
            "question": field(sample, "question", where),
        }
        yield {**row, "answers": gold, "kind": sample.get("type", "")}


def captions(args):
    """Captions beside the pictures (COCO's layout), or in them (Karpathy's, of which the test split is taken)."""
    picture = Pictures(args)
    data, said = load(args.file), {}
    for i, sample in enumerate(data.get("annotations", []) if isinstance(data, dict) else []):
        where = f"{args.file}: annotation {i}"
        said.setdefault(field(sample, "image_id", where), []).append(field(sample, "caption", where))
    for where, sample in records(args.file, "images"):
        if "sentences" in sample:
            if sample.get("split", "test") != "test":
                continue
            name, gold = field(sample, "filename", where), [field(one, "raw", where) for one in sample["sentences"]]
        else:
            name, gold = field(sample, "file_name", where), said.get(field(sample, "id", where))
        if not gold:
            raise LayoutError(f"{where}: no caption")
        yield {"image": picture(name, where), "question": args.ask, "answers": gold}


class Videos:
    """Frames of videos, written once, as names relative to the folder of questions."""

    def __init__(self, args):
        self.videos, self.out, self.fps, self.seen = Folder(args.videos), Path(args.out), args.fps, {}

    def __call__(self, name, where):
        if name not in self.seen:
            path = str(self.videos.path(name, where))
            folder = self.out / "frames" / f"{len(self.seen):05}"
            folder.mkdir(parents=True, exist_ok=True)
            command = ["ffmpeg", "-nostdin", "-v", "error", "-y", "-i", path, "-an"]
            done = subprocess.run(
                [*command, "-vf", f"fps={self.fps:g}", str(folder / "%05d.png")],
                capture_output=True,
                text=True,
                check=False,
            )
            frames = sorted(folder.glob("*.png"))
            if done.returncode or not frames:
                raise LayoutError(f"{where}: ffmpeg made no frame of {path}: {done.stderr.strip()}")
            self.seen[name] = [str(frame.relative_to(self.out)) for frame in frames]
        return self.seen[name]


def rounds(args, samples):
    """One stream, a clip and a question each round, as Inf-MLLM concatenates samples."""
    video = Videos(args)
    for clip, (where, name, sample) in enumerate(samples):
        row = {"stream": 0, "clip": clip, "frames": video(name, where), "question": field(sample, "question", where)}
        gold = texts(field(sample, "answer", where), where)
        yield {**row, "answers": gold, "distance": 0, "kind": sample.get("answer_type") or "present"}


def named_by_id(args):
    for where, sample in records(args.file):
        yield where, args.video_name.format(id=field(sample, "video_id", where)), sample


def msvd(args):
    return rounds(args, named_by_id(args))


def msrvtt(args):
    return rounds(args, named_by_id(args))


def vstream(args):
    return rounds(args, named_by_id(args))


def tgif(args):
    def samples():
        with open(args.file, encoding="utf-8", newline="") as file:
            for i, sample in enumerate(csv.DictReader(file, delimiter="\t"), 2):
                where = f"{args.file}:{i}"
                yield where, args.video_name.format(id=field(sample, "gif_name", where)), sample

    return rounds(args, samples())


def ovo(args):
    return video_tasks.streams(video_tasks.ovo(records(args.file), field), Videos(args), args.fps)


def streamingbench(args):
    return video_tasks.streams(video_tasks.streamingbench(records(args.file), field), Videos(args), args.fps)


def egoschema(args):
    rounds = video_tasks.egoschema(records(args.file), field, load(args.answers), args.video_name)
    return video_tasks.streams(rounds, Videos(args), args.fps)


VIDEO_NAMES = {msvd: "vid{id}.avi", msrvtt: "video{id}.mp4", tgif: "{id}.gif", vstream: "{id}.mp4"}
VIDEO_NAMES |= {ovo: "", streamingbench: "", egoschema: "{id}.mp4"}  # the first two name the files themselves
LAYOUTS = (longbench, vqa, textvqa, docvqa, ocrbench, captions, msvd, msrvtt, tgif, vstream, ovo, streamingbench)
LAYOUTS += (egoschema,)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    layouts = parser.add_subparsers(dest="layout", required=True, metavar="LAYOUT")
    for layout in LAYOUTS:
        sub = layouts.add_parser(layout.__name__, description=layout.__doc__)
        sub.add_argument("file")
        sub.add_argument("-o", "--out", required=True)
        sub.add_argument("--n", type=int, default=0, help="the first N samples only")
        sub.set_defaults(make=layout)
        if layout is longbench:
            sub.add_argument("--prompts", required=True, help="dataset2prompt.json")
            sub.add_argument("--lengths", required=True, help="dataset2maxlen.json")
        elif layout in VIDEO_NAMES:
            sub.add_argument("--videos", required=True)
            sub.add_argument("--fps", type=float, default=1)
            sub.add_argument("--video-name", default=VIDEO_NAMES[layout], help="of a sample's id")
        else:
            sub.add_argument("--images", required=True)
        if layout is egoschema:
            sub.add_argument("answers", help="subset_answers.json")
        if layout is vqa:
            sub.add_argument("annotations")
            sub.add_argument("--image-name", default="COCO_val2014_{id:012d}.jpg")
        if layout is captions:
            sub.add_argument("--ask", default="Describe the picture in one sentence.")
    args = parser.parse_args(arguments)
    out = Path(args.out)
    target = out if args.layout == "longbench" else out / "questions.jsonl"
    target.parent.mkdir(parents=True, exist_ok=True)
    n = 0
    try:
        with target.open("w", encoding="utf-8") as file:
            for row in args.make(args):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                n += 1
                if n == args.n:
                    break
    except (LayoutError, OSError) as error:
        target.unlink(missing_ok=True)
        raise SystemExit(f"convert: {error}") from error
    if n == 0:
        target.unlink(missing_ok=True)
        raise SystemExit(f"convert: {args.file} has no sample")
    print(f"{target}: {n} samples", file=sys.stderr)


if __name__ == "__main__":
    main()
