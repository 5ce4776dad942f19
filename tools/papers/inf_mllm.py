# SPDX-License-Identifier: Apache-2.0
"""Inf-MLLM (arXiv 2409.09086)."""

from tools.papers.entry import DRAWING, MADE, MISSING, PARTLY, ROOT, Entry, Setting, Step, python

# Rounds stay in the stream and every prompt's attention evicts: a pot of `pot` slots that holds `kept` after a prompt,
# and has room for a round's lines, question and answer.
ROUNDS = ["--carry", "--gold-nll", "0"]


def lines(s: Setting, name: str, policies: str, distances: str) -> list[Step]:
    form = ["--format", "register", "--keys", "number"] if s.model_given else []
    pot = s.size(512, 3072)
    flags = [*ROUNDS, *form, "--policy", policies, "--pot", pot, "--distance", distances, "--n", s.trials(100)]
    return [s.eval(name, "lines", *flags), s.table(name, "distance")]


def table_2(s):
    kept = s.size(384, 2048)
    policies = f"streaming_llm;inf_mllm:capacity={kept};inf_mllm:capacity={kept},b=0.01;inf_mllm;inf_mllm:b=0.01"
    return lines(s, "inf-mllm-table-2", policies, s.size("5,10,15,20,25,30,35", "5,10,15,20,25,30,35"))


def table_4(s):
    kept = s.size(384, 2048)
    policies = [f"inf_mllm:capacity={kept},b={b}" for b in ("1", "0.1", "0.01", "0.001", "0.0001")]
    return lines(s, "inf-mllm-table-4", ";".join([*policies, f"inf_mllm:capacity={kept},bias=share"]), "5,15,25,35")


def figure_2(s):
    """What a pot holds along a text, and the attention its slots have whenever some of them leave, in one layer."""
    trace, picture = s.out / "inf-mllm-figure-2.trace", s.out / "inf-mllm-figure-2.svg"
    read = ["-f", s.text, "-n", s.size(3400, 8000), "--policy", "inf_mllm:b=0.01", "--pot", s.size(512, 2048)]
    run = s.eval("inf-mllm-figure-2", "ppl", *read, "--trace", str(trace), "--trace-scores")
    return [run, Step([s.weir, "trace", str(trace), "--layer", "10", "-o", str(picture)])]


def figure_5(s):
    name = "inf-mllm-figure-5"
    policies = "window;h2o;streaming_llm;inf_mllm:b=0.01;inf_mllm"
    pot, n = s.size(512, 2048), s.size(20000, 20000)
    flags = ["-f", s.text, "--policy", policies, "--pot", pot, "-n", n, "--segment", "1000"]
    ratio = [str(ROOT / "tools/plot/stream.py"), str(s.rows(name)), "--ratio", str(s.out / f"{name}.svg")]
    return [
        s.eval(name, "ppl", *flags),
        s.table(name, "end_token", "--task", "stream", "--digits", "1"),
        Step([python(), *ratio, "--skip", "1000", "--top", "1.3"]),
    ]


def table_1(s):
    name = "inf-mllm-table-1"
    kept, pot = s.size(288, 2048), s.size(384, 3072)
    policies = f"full;inf_mllm:capacity={kept};inf_mllm"
    flags = ["--policy", policies, "--pot", pot, "--rounds", "5,10,300"]
    return [s.world(name, "videoqa", *flags), s.table(name, "rounds", "--where", "kind=all")]


def table_3(s):
    name = "inf-mllm-table-3"
    kept, pot = s.size(288, 2048), s.size(384, 3072)
    return [s.world(name, "streamvideo", "--policy", f"full;inf_mllm:capacity={kept};inf_mllm", "--pot", pot)]


def figure_7(s):
    """Latency of a token and memory by the size of the cache, a long context behind it."""
    steps = []
    for pot in s.size("512,1024,2048", "512,1024,2048,4096").split(","):
        name = f"inf-mllm-figure-7-{pot}"
        for policy in ("streaming_llm", "h2o"):
            bench = [s.weir, "bench", "-m", s.model, "--pot", pot, "--policy", "inf_mllm", "--against", policy]
            sizes = ["-p", "1024", "-n", "64", "-d", s.size(4096, 40960), "-r", "3", "-o", "jsonl"]
            threads = ["-t", str(s.threads)] if s.threads else []
            steps.append(Step([*bench, *sizes, *threads], s.rows(f"{name}-{policy}")))
    return steps


ENTRIES = [
    Entry("inf-mllm/figure-1", "streaming inference, illustrated", DRAWING),
    Entry(
        "inf-mllm/figure-2",
        "attention maps of some layers",
        PARTLY,
        "a text instead of a video dialogue; a row for each eviction, not for each token; mean over a layer's heads",
        figure_2,
        ("text",),
    ),
    Entry("inf-mllm/figure-3", "eviction, illustrated", DRAWING),
    Entry("inf-mllm/figure-4", "attention bias, illustrated", DRAWING),
    Entry(
        "inf-mllm/figure-5",
        "perplexity along 20,000 and 4M tokens",
        PARTLY,
        "novels instead of WikiText-103, 20,000 tokens of them; chunks instead of tokens one by one; the "
        "size of the cache is not published",
        figure_5,
        ("text",),
    ),
    Entry(
        "inf-mllm/table-1",
        "video question answering in 5, 10 and 300 rounds",
        MADE,
        "answers are compared with the right ones, not judged by a language model; no second field `score`",
        table_1,
        vision=True,
    ),
    Entry(
        "inf-mllm/table-2",
        "lines 5 to 35 back, rounds carried in the stream",
        MADE,
        "lines per round are not published (10 here); our model has lines of a word and a number, and a pot of 512",
        table_2,
    ),
    Entry(
        "inf-mllm/table-3",
        "questions along an hour of video",
        PARTLY,
        "ten minutes of a generated world unless --data names a stream; answers compared, not judged",
        table_3,
        vision=True,
    ),
    Entry(
        "inf-mllm/figure-6",
        "a chat about a film on a Jetson Orin, and its memory",
        MISSING,
        "no such board; the memory of an hour of video on a CPU is in vision.md (tools/load/watch_hour.py)",
    ),
    Entry(
        "inf-mllm/figure-7",
        "latency of a token and memory against the size of the cache",
        MADE,
        "on a CPU; a context of 4,096 tokens with our model, 40,960 with the user's",
        figure_7,
    ),
    Entry(
        "inf-mllm/table-4",
        "the attention bias, by distance, rounds carried in the stream",
        MADE,
        "as table 2; b = 0.0001 and the found b (`bias=share`) are ours",
        table_4,
    ),
]
