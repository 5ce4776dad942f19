# SPDX-License-Identifier: Apache-2.0
"""The program calls of record_behaviour.py, by section. Paths are relative to a folder that holds `in`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator

from tools.golden.behaviour_run import Case, Recorder, Step

POLICIES = (
    "weir streaming_llm inf_mllm infinipot h2o tova snapkv pyramidkv adakv sirllm keydiff value_norm a_vl fastv "
    "streaming_vlm last_frames infinipot_v lookm window random full"
).split()
# For policies whose choices change what is computed.
VARIANTS = """
a_vl:heavy=0.2,text_min=5 a_vl:positions=abs adakv:reduce=max,floor=0.5 adakv:capacity=48,pooling=avg,kernel=3
fastv:positions=abs h2o:share=0.2 h2o:recent=16,step=1 h2o:reduce=sum,normalise=count inf_mllm:recent=16,b=0.01
inf_mllm:per_kv_head=on,capacity=60 infinipot:ratio=0.3,alpha=0.8
infinipot:rows=max,reduce=max,kernel=5,pooling=max infinipot:template=off,sinks=4
infinipot_v:ratio=0.5,alpha=0.2 infinipot_v:recent=0.5,text=0.5 keydiff:recent=24 last_frames:frames=2
last_frames:text=0.6 lookm:share=0.2,reduce=sum pyramidkv:beta=5,reduce=sum pyramidkv:capacity=48,positions=abs
random:seed=5,draw=once random:per=pot random:per=layer,recent=16 sirllm:decay=0.9,recent=32 sirllm:sinks=0
snapkv:pooling=max,kernel=3 snapkv:capacity=48,positions=abs streaming_llm:sinks=12,step=1
streaming_vlm:text=64,seconds=2 tova:step=1 value_norm:recent=24 weir:alpha=0.7,z=1
weir:beta=0.4,saddle=2,kernel=1,saddles=always weir:frame_rows=0,recent=0.6
weir:b=0.01,rows=8,sinks=0,saddles=always window:step=1
""".split()
REAL = "in/models/smollm2.gguf"
LLAMA = "in/golden/llama.gguf"
WIDE = "in/golden/llama_wide_heads.gguf"  # heads that q8_0 can store
# (language model, encoder)
PAIRS = {
    "clip": ("vision/llava", "vision/clip"),
    "clip_next": ("vision/llava", "vision/clip_next"),
    "chat_univi": ("vision/llava", "vision/chat_univi"),
    "flash_vstream": ("vision/llava", "vision/flash_vstream"),
    "qwen2vl": ("vision/qwen2vl", "vision/qwen2vl_merger"),
    "smolvlm": ("vision/smolvlm", "vision/idefics3"),
    "qwenvl": ("vision/qwenvl", "vision/qwenvl_resampler"),
    "blip2": ("golden/opt", "vision/blip2"),
    "tiny_llava": ("models/weir-tiny-llava", "models/mmproj-weir-tiny-llava"),
    "tiny_blip2": ("models/weir-tiny-blip2", "models/mmproj-weir-tiny-blip2"),
}
SAMPLINGS = {
    "seed7": "-s 7",
    "top_k": "-s 1 --temp 1.3 --top-k 5 --top-p 1 --min-p 0",
    "top_p": "-s 2 --temp 1 --top-k 0 --top-p 0.7 --min-p 0",
    "min_p": "-s 3 --temp 0.9 --top-k 0 --top-p 1 --min-p 0.2",
    "repeat": "-s 4 --temp 0.7 --repeat-penalty 1.3 --repeat-last-n 16",
    "greedy_repeat": "--temp 0 --repeat-penalty 1.15 --repeat-last-n -1",
}
GREEDY = "--temp 0 --ignore-eos"


class Maker:
    """Makes steps with the recording's number of threads."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.threads = ["-t", str(recorder.threads)]

    def step(
        self, command: str, model: str, flags: str, *more: str, stdin: str = "", kind: str = "rows", **env: str
    ) -> Step:
        """`weir COMMAND -m MODEL FLAGS MORE`: `more` are arguments with spaces in them."""
        arguments = [*command.split(), "-m", model, *self.threads, *flags.split(), *more]
        return Step(arguments, stdin.encode(), kind, environment=env)


def pair(name: str) -> tuple[str, str]:
    model, encoder = PAIRS[name]
    return f"in/{model}.gguf", f"--mmproj in/{encoder}.gguf --media-timeout 600"


# ---------------------------------------------------------------------------------------------------------------- text


def golden_text(make: Maker, name: str) -> Case:
    model = f"in/golden/{name}.gguf"
    run = lambda flags, *more: make.step("run", model, f"-n 24 {flags} -o json", *more)
    return Case(
        f"golden/{name}",
        [
            run(GREEDY, "-p", "the man and the sea"),
            run(f"{GREEDY} -f in/words.txt --pot 96"),
            run(f"{GREEDY} -f in/words.txt --pot 96 --policy streaming_llm -ctk f16 -ctv f16 -b 16"),
            run("-s 7 --ignore-eos --repeat-penalty 1.1", "-p", "the boat"),
            run(
                f"{GREEDY} --chat --chat-template chatml --pot 160", "--system", "the old man", "-p", "where is the sea"
            ),
            run(f"{GREEDY} -f in/odd.txt --parse-special"),
            make.step("eval ppl", model, "-f in/words.txt --pot 96 --policy full;weir;window -n 400 --lengths 100,300"),
            make.step("eval ppl", model, "-f in/words.txt --window 64 -n 256 --policy full"),
            make.step("eval greedy", model, "--ids 1,5,9 -n 16"),
        ],
    )


def simd_levels(recorder: Recorder) -> list[str]:
    """The values WEIR_SIMD accepts on this machine, from the program's error for an invalid name."""
    environment = {**os.environ, "WEIR_SIMD": "?"}
    told = subprocess.run([str(recorder.program), "policies"], env=environment, capture_output=True, text=True)
    return told.stderr.strip().rpartition("this machine has ")[2].replace(" and ", ",").replace(",", " ").split()


def kernel_text(make: Maker) -> Iterator[Case]:
    """Cases that depend on instruction sets, threads, cache types and chunk sizes."""
    for level in simd_levels(make.recorder):
        steps = [
            make.step("eval ppl", model, f"-f in/words.txt --pot 128 --policy weir -n {n}", WEIR_SIMD=level)
            for model, n in ((LLAMA, 400), ("in/golden/gemma2.gguf", 200), (REAL, 200))
        ]
        yield Case(f"simd/{level}", steps)
    for k_type in ("f32", "f16", "q8_0", "q4_0"):
        for v_type in ("f32", "f16", "q8_0", "q4_0"):
            flags = f"-f in/words.txt --pot 128 --policy weir;h2o -n 300 -ctk {k_type} -ctv {v_type}"
            yield Case(
                f"cache_types/{k_type}_{v_type}", [make.step("eval ppl", model, flags) for model in (WIDE, REAL)]
            )
    for threads in (1, 3):
        arguments = [
            "eval",
            "ppl",
            "-m",
            REAL,
            "-t",
            str(threads),
            *"-f in/words.txt --pot 128 --policy weir -n 300".split(),
        ]
        yield Case(f"threads/{threads}", [Step(arguments)])
    for chunk in (1, 7, 64, 200):
        flags = f"-f in/words.txt --pot 256 --policy weir;snapkv;inf_mllm -n 500 -b {chunk}"
        yield Case(f"chunks/{chunk}", [make.step("eval ppl", LLAMA, flags)])


def chat_cases(make: Maker, name: str, model: str, flags: str) -> Iterator[Case]:
    """Saved sessions store the seed, so a fixed one is set even where nothing is sampled."""
    rounds = "Hello! Who are you?\nName a river.\n"
    after = "And another one?\n/file in/words.txt\nWhat did you read?\n/reset\nHello!\n/nothing\n/memory\n"
    chat = lambda more, stdin, *rest: make.step("chat", model, f"{flags} {more}", *rest, stdin=stdin, kind="raw")
    in_file = "--temp 0 -s 1 --session s.weir"
    talks = [
        chat("--temp 0 -s 1", rounds + "/save talk.weir\nAnd a mountain?\n"),
        chat("--temp 0", "/load talk.weir\n" + after),
        chat("--temp 0", rounds, "--pin", "My name is Catherine.", "--system", "You are a poet."),
        chat("-s 5", rounds, "--system", "You are a poet.", "--no-pin-system"),
    ]
    yield Case(f"chat/{name}", talks, digests=["talk.weir"])
    sittings = [
        chat(in_file, rounds),
        chat(in_file, "And a mountain?\n"),
        make.step("run", model, "--session s.weir --chat --temp 0 -s 1 -n 12 -o json", "-p", "What else?"),
    ]
    yield Case(f"chat/{name}_session", sittings, digests=["s.weir"])


def real_text(make: Maker) -> Iterator[Case]:
    run = lambda flags, *more: make.step("run", REAL, f"{flags} -o json", *more)
    yield Case(
        "real/run",
        [
            run("-n 32 --temp 0", "-p", "The capital of France is"),
            run("-n 40 --temp 0 --chat", "-p", "Name three rivers."),
            run("-n 40 --temp 0 --chat --budget 32MiB", "--system", "Answer in French.", "-p", "Name three rivers."),
            run("-n 24 --temp 0 -f in/licence.txt --pot 300"),
            run("-n 24 --temp 0 -f in/odd.txt"),
            run("-n 8 --temp 0 --on-overflow error -f in/licence.txt --pot 300"),
            make.step("run", REAL, "-n 32 --temp 0", "-p", "Once upon a time", kind="raw"),
        ],
    )
    for name, flags in SAMPLINGS.items():
        yield Case(f"real/sampled_{name}", [run(f"-n 48 {flags}", "-p", "Once upon a time there was")])
    read = lambda flags, *more: make.step(
        "read", REAL, f"{flags} -n 32 --temp 0 -o json", *more, "--ask", "What is this about?"
    )
    yield Case(
        "real/read",
        [
            read("in/licence.txt --pot 512"),
            read(
                "in/words.txt --pot 256 --policy streaming_llm",
                "--system",
                "You are terse.",
                "--pin",
                "It is about the sea.",
            ),
            read("in/licence.txt --budget 24MiB --policy infinipot"),
        ],
    )
    yield Case(
        "real/run_session",
        [
            make.step("run", REAL, "--session a.weir --temp 0 -s 1 -n 16 -o json", "-p", "The old man and"),
            make.step("run", REAL, "--session a.weir --temp 0 -s 1 -n 16 -o json", "-p", " Then he said"),
        ],
        digests=["a.weir"],
    )
    yield Case(
        "real/ppl",
        [
            make.step("eval ppl", REAL, "-f in/book.txt -n 1500 --pot 512 --policy weir --segment 500 --lengths 700"),
            make.step("eval ppl", REAL, "-f in/book.txt --window 256 -n 768 --policy full"),
        ],
    )


def eval_cases(make: Maker) -> Iterator[Case]:
    """Each text-only suite of `weir eval`, with its own flags."""
    for name, model, pot in (("llama", LLAMA, 256), ("real", REAL, 256)):
        flags = f"--pot {pot} --policy weir;streaming_llm"
        n = 3 if name == "llama" else 2
        yield Case(
            f"eval/{name}",
            [
                make.step("eval lines", model, f"{flags} --n {n} --distance 3,12 --every 4"),
                make.step(
                    "eval lines", model, f"{flags} --n {n} --distance 3 --every 4 --carry --format register --keys pair"
                ),
                make.step(
                    "eval lines", model, f"{flags} --n 1 --style longeval --lines 8,16 --format longeval --keys number"
                ),
                make.step("eval passkey", model, f"{flags} --n 1 --length 300,500 --key-at 64 --gold-nll true"),
                make.step("eval passkey", model, f"{flags} --n 1 --mode grid --length 300 --depth 0.2,0.8"),
                make.step("eval needle", model, f"{flags} --n 1 --length 400 --depth 0.5"),
                make.step("eval streamqa", model, f"{flags} --n 2 --distance 128,256 --gap 64 --every 128"),
                make.step("eval longbench", model, f"{flags} -f in/longbench.jsonl --prompt completion"),
                make.step("eval longbench", model, f"{flags} -f in/longbench.jsonl --max-tokens 200 --max-answer 6"),
            ],
        )
    tune = "--policy weir --pot 128 --trials 2 --questions 1 --max-points 3 --json --output p.json -f in/words.txt"
    yield Case("eval/tune", [make.step("tune", LLAMA, tune)], files=["p.json"])
    for of in ("-p 32 -n 4 -d 0,64 -r 1", "-p 16 -n 2 -r 1 --pot 64 --against window"):
        yield Case(f"eval/bench_{len(of)}", [make.step("bench", LLAMA, f"{of} -o jsonl", kind="bench")])


def text_cases(recorder: Recorder) -> Iterator[Case]:
    make = Maker(recorder)
    yield from (golden_text(make, name) for name in recorder.models("golden"))
    yield from kernel_text(make)
    yield from chat_cases(make, "real", REAL, "--pot 256 -n 20")
    yield from chat_cases(make, "llama", LLAMA, "--chat-template chatml --pot 96 -n 12")
    yield from real_text(make)
    yield from eval_cases(make)


# ------------------------------------------------------------------------------------------------------------ pictures


def pair_case(make: Maker, name: str) -> Case:
    model, eyes = pair(name)
    template = "" if name.startswith("tiny_llava") else "--chat-template vicuna"
    sampled = lambda flags, *more: make.step("run", model, f"{eyes} -n 10 --ignore-eos {flags} -o json", *more)
    run = lambda flags, *more: sampled(f"--temp 0 {flags}", *more)
    video = "--video in/clip.mp4 --fps 2"
    rounds = "/image in/world.png\nWhat shape is blue?\n/video in/clip.mp4\nand now?\n/image in/no_picture.png\nand?\n"
    return Case(
        f"pairs/{name}",
        [
            run("--image in/world.png", "-p", "the man"),
            run("--image in/1.ppm --image in/wide.ppm", "-p", "a <__media__> b <__media__> c"),
            sampled("--image in/wide.ppm --max-side 48 -s 3 --temp 0.8", "-p", "the man"),
            run(f"{video} --pot 160", "-p", "the man"),
            run("--video in/clip.y4m --fps 1 --pot 160 --policy streaming_vlm", "-p", "the man"),
            run(f"--image in/world.png --chat {template}", "-p", "What is on the left?"),
            make.step("chat", model, f"{eyes} -n 8 --temp 0 --pot 400 {template}", stdin=rounds, kind="raw"),
            run("--image in/no_picture.png", "-p", "the man"),
        ],
    )


def pruned_case(make: Maker, name: str) -> Case:
    """Pairs that do not support pruning report an error, which is recorded too."""
    model, eyes = pair(name)
    pruners = ["l2:keep=0.5", "l2:keep=0.125"]
    if "blip2" in name:
        pruners += [
            "catp:keep=0.5",
            "catp:keep=0.25,layers=first",
            "catp:keep=0.5,weights=image",
            "self_attention:keep=0.25",
        ]
    steps = [
        make.step(
            "run",
            model,
            f"{eyes} --image in/world.png --image in/1.ppm -n 10 {GREEDY} --prune {prune} -o json",
            "-p",
            "the man",
        )
        for prune in pruners
    ]
    steps.append(
        make.step(
            "run",
            model,
            f"{eyes} --video in/clip.mp4 --fps 2 --pot 120 --prune l2 -n 8 {GREEDY} -o json",
            "-p",
            "the man",
        )
    )
    return Case(f"pruned/{name}", steps)


def watch_case(make: Maker, name: str) -> Case:
    model, eyes = pair(name)
    template = "" if name == "tiny_llava" else "--chat-template vicuna"
    watch = lambda flags: make.step(
        "watch",
        model,
        f"in/clip.mp4 {eyes} {template} --fast --temp 0 -n 8 -o json {flags}",
        "--ask",
        "What shape is blue?",
        kind="watch",
    )
    return Case(
        f"watch/{name}",
        [
            watch("--pot 300 --fps 2"),
            watch("--pot 200 --fps 2 --every 2s --report 2s --policy last_frames"),
            watch("--pot 200 --fps 1 --prune l2:keep=0.5 --trace t.jsonl"),
        ],
        files=["t.jsonl"],
    )


def seeing_evals(make: Maker) -> Iterator[Case]:
    for name in PAIRS:
        model, eyes = pair(name)
        yield Case(
            f"vqa/{name}",
            [
                make.step(
                    "eval vqa", model, f"{eyes} --data in/rounds --answer 4 --metric exact,vqa,anls,f1,rouge_l,cider"
                ),
                make.step(
                    "eval videoqa",
                    model,
                    f"{eyes} --data in/rounds --answer 3 --policy full;weir --pot 300 --rounds 2,4",
                ),
            ],
        )
    model, eyes = pair("tiny_llava")
    yield Case("world/vqa", [make.step("eval vqa", model, f"{eyes} --data in/pictures --metric exact,vqa")])
    yield Case(
        "world/videoqa",
        [
            make.step(
                "eval videoqa", model, f"{eyes} --data in/clips --policy weir --pot 384 --rounds 8,16 --transcript"
            ),
            make.step(
                "eval videoqa", model, f"{eyes} --data in/clips --policy weir --pot 256 --rounds 16 --answers true"
            ),
        ],
    )
    yield Case(
        "world/streamvideo",
        [
            make.step(
                "eval streamvideo", model, f"{eyes} --data in/minute --policy weir;window --pot 256 --ages 0.1,0.5"
            )
        ],
    )
    yield Case("world/avl", [make.step("eval avl", model, f"{eyes} --data in/pictures --n 4 --decode 8")])
    model, eyes = pair("tiny_blip2")
    yield Case("world/catp", [make.step("eval catp", model, f"{eyes} --data in/pictures --n 6 --keep 0.5,0.125")])


def picture_cases(recorder: Recorder) -> Iterator[Case]:
    make = Maker(recorder)
    for name in PAIRS:
        yield pair_case(make, name)
        yield pruned_case(make, name)
        yield watch_case(make, name)
    yield from seeing_evals(make)


# ------------------------------------------------------------------------------------------------------------ policies


def traced(make: Maker, policy: str, folder: str, model: str, flags: str) -> Case:
    """A stream far longer than the pot: its likelihoods, and a trace of every evicted token."""
    steps = [make.step("eval ppl", model, f"--policy {policy} --trace t.jsonl {flags}")]
    steps += [Step(["trace", "t.jsonl"], kind="raw"), Step(["trace", "t.jsonl", "-o", "t.svg"], kind="raw")]
    steps += [Step(["remembers", "t.jsonl", "--at", at, "-o", "json"], kind="raw") for at in ("50%", "95%", "0")]
    steps.append(Step(["remembers", "t.jsonl", "--at", "99%", "--layer", "0", "--least", "0.5"], kind="raw"))
    return Case(f"{folder}/{policy.replace(':', '_')}", steps, files=["t.jsonl", "t.svg"])


def answered(make: Maker, policy: str) -> Case:
    """Finite prompts, answers and questions asked aside, where policies do more than in a stream."""
    llama = lambda flags, *more: make.step("run", LLAMA, f"--policy {policy} -n 24 {GREEDY} -o json {flags}", *more)
    real = f"--policy {policy} --pot 256 -n 24 --temp 0 -o json"
    scored = "--trace s.jsonl --trace-scores"
    return Case(
        f"answers/{policy.replace(':', '_')}",
        [
            llama(f"-f in/words.txt --pot 128 {scored}"),
            llama("-f in/words.txt --pot 200 -b 32"),
            llama(
                "--chat --chat-template chatml --pot 128 -ctk f16 -ctv f32",
                "--system",
                "the old man",
                "-p",
                "the sea and the boat " * 60,
            ),
            make.step(
                "eval passkey", LLAMA, f"--policy {policy} --pot 128 --n 2 --length 200,400 --key-at 64 --gold-nll true"
            ),
            make.step("eval lines", LLAMA, f"--policy {policy} --pot 128 --n 3 --distance 3,12 --every 4"),
        ]
        + (
            []
            if ":" in policy
            else [
                make.step("read", REAL, f"in/words.txt {real}", "--ask", "Where is the boat?"),
                make.step("eval passkey", REAL, f"--policy {policy} --pot 256 --n 1 --length 400 --key-at 64"),
            ]
        ),
        files=["s.jsonl"],
    )


def seen(make: Maker, policy: str) -> Case:
    steps = []
    for name, data, pots in (("clip", "rounds", "64,96"), ("tiny_llava", "clips", "256")):
        model, eyes = pair(name)
        steps.append(
            make.step(
                "eval videoqa",
                model,
                f"{eyes} --data in/{data} --policy {policy} --pot {pots} --answer 4 --rounds 4,16",
            )
        )
    model, eyes = pair("tiny_llava")
    steps.append(
        make.step(
            "run",
            model,
            f"{eyes} --video in/clip.mp4 --fps 3 --pot 200 --policy {policy} --trace v.jsonl -n 12 "
            f"{GREEDY} --chat -o json",
            "-p",
            "What is on the left?",
        )
    )
    steps.append(Step(["trace", "v.jsonl"], kind="raw"))
    return Case(f"seen/{policy.replace(':', '_')}", steps, files=["v.jsonl"])


def attention_case(make: Maker) -> Case:
    model, eyes = pair("tiny_llava")
    return Case(
        "attention",
        [
            make.step(
                "run",
                model,
                f"{eyes} --image in/world.png --policy full --trace t.jsonl --trace-attention 8 -n 8 {GREEDY} -o json",
                "-p",
                "What is this?",
            ),
            Step(["trace", "t.jsonl", "--attention"], kind="raw"),
            Step(["trace", "t.jsonl", "--attention", "--top", "0.2", "-o", "a.svg"], kind="raw"),
            Step(["trace", "t.jsonl", "--events"], kind="raw"),
        ],
        files=["t.jsonl", "a.svg"],
    )


def policy_cases(recorder: Recorder) -> Iterator[Case]:
    make = Maker(recorder)
    for policy in [*POLICIES, *VARIANTS]:
        yield traced(make, policy, "llama", LLAMA, "-f in/long_words.txt --pot 192 -n 2000 --segment 500")
        yield answered(make, policy)
        yield seen(make, policy)
    for policy in POLICIES:
        yield traced(make, policy, "real", REAL, "-f in/licence.txt --pot 256 -n 900 --segment 300")
    for name in ("gemma2", "qwen2", "llama_window", "opt"):
        yield from (
            traced(make, policy, name, f"in/golden/{name}.gguf", "-f in/words.txt --pot 96 -n 500")
            for policy in ("weir", "h2o", "snapkv", "adakv")
        )
    yield attention_case(make)


# --------------------------------------------------------------------------------------------------------------- plans


def plan_cases(recorder: Recorder) -> Iterator[Case]:
    make = Maker(recorder)
    plan = lambda model, flags: make.step("plan", model, f"{flags} -o json", kind="raw")
    golden = [f"golden/{name}" for name in recorder.models("golden")]
    for name in [*golden, "models/smollm2", "models/weir-tiny-llava", "vision/qwen2vl"]:
        model = f"in/{name}.gguf"
        steps = [plan(model, f"--pot {pot}") for pot in (64, 1024)] + [
            plan(model, "--budget 64MiB -ctk f16 -ctv f16"),
            plan(model, ""),
        ]
        yield Case(f"models/{name.replace('/', '_')}", [*steps, make.step("plan", model, "--pot 256", kind="raw")])
    for policy in [*POLICIES, *VARIANTS]:
        pots = [
            f"--policy {policy} {pot}"
            for pot in ("--pot 128", "--pot 1024 -b 64 -ctk f16", "--budget 48MiB", "--pot 8")
        ]
        yield Case(
            f"policies/{policy.replace(':', '_')}", [plan(model, pot) for model in (LLAMA, REAL) for pot in pots]
        )
    for name in PAIRS:
        model, eyes = pair(name)
        shown = (
            "",
            "--image in/wide.ppm",
            "--video in/clip.mp4",
            "--image in/1.ppm --prune l2:keep=0.5",
            "--max-side 64",
        )
        yield Case(f"pairs/{name}", [plan(model, f"{eyes} --pot 256 {what}") for what in shown])
    yield from info_cases(recorder)


def info_cases(recorder: Recorder) -> Iterator[Case]:
    for folder in ("golden", "vision", "models"):
        for name in recorder.models(folder):
            tensors = ["--tensors"] if folder != "models" else []
            yield Case(f"info/{folder}_{name}", [Step(["info", f"in/{folder}/{name}.gguf", *tensors], kind="raw")])
    yield Case(
        "info/pairs", [Step(["info", "-m", pair(name)[0], *pair(name)[1].split()[:2]], kind="raw") for name in PAIRS]
    )
    yield Case("list_policies", [Step(["policies"], kind="raw")])
    yield Case("list_pruners", [Step(["pruners"], kind="raw")])


# ---------------------------------------------------------------------------------------------------------------- capi


def capi_cases(recorder: Recorder) -> Iterator[Case]:
    for name in ("endless", "fork"):
        program = recorder.program.parent / "examples" / name
        if program.exists():
            models = [LLAMA, "in/golden/qwen2.gguf", "in/golden/none.gguf"]
            yield Case(name, [Step([model], kind="raw", program=str(program)) for model in models])


SECTIONS: dict[str, Callable[[Recorder], Iterator[Case]]] = {
    "text": text_cases,
    "pictures": picture_cases,
    "policies": policy_cases,
    "plans": plan_cases,
    "capi": capi_cases,
}
