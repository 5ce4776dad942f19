# SPDX-License-Identifier: Apache-2.0
"""A-VL (AAAI 2025; the slides of its talk number no tables)."""

from tools.papers.entry import MADE, PARTLY, ROOT, Entry, Setting, Step, python


def attention(s: Setting) -> list[Step]:
    """Where the attention on pictures goes: sparsity, what layers and tokens have in common, decay over text."""
    trace, picture = s.out / "a-vl-attention.trace", s.out / "a-vl-attention.svg"
    steps, images = [], [s.data]
    if not s.data:
        folder = s.out / "pictures"
        made = ["--clips", "12", "--frames", "1", "--rounds", "1", "--kinds", "1,0,0,0", "--unnamed", "--seed", "7001"]
        steps.append(Step([python(), str(ROOT / "tools/train/make_streams.py"), str(folder), *made]))
        images = [str(folder / f"0000/{i:04}.0.ppm") for i in range(12)]
    shown = [part for image in images for part in ("--image", image)]
    run = [s.weir, "run", "-m", s.model, "--mmproj", s.mmproj, *shown, "-p", "What colour is it?", "--temp", "0"]
    write = ["--ignore-eos", "-n", "24", "--policy", "full", "--trace", str(trace), "--trace-attention", "25"]
    top = [s.weir, "trace", str(trace), "--attention", "--top", "0.3"]
    return [*steps, Step([*run, *write]), Step(top), Step([*top, "-o", str(picture)])]


def first_three(s):
    program, data = str(ROOT / "tools/papers/first_tokens.py"), s.data
    steps = []
    if not data:
        data = str(s.out / "films")
        made = ["--clips", s.trials(50), "--frames", "4", "--rounds", "1", "--kinds", "1,0,0,0", "--unnamed"]
        steps.append(Step([python(), str(ROOT / "tools/train/make_streams.py"), data, *made, "--seed", "7006"]))
    ask = [python(), program, "--weir", s.weir, "-m", s.model, "--mmproj", s.mmproj, "--data", data]
    return [*steps, Step([*ask, "-n", s.trials(50)])]


# Our questions are shorter than T's minimum of 20 tokens: others before the one that counts make them longer.
LONG = (
    "What colour is it? What shape is it? How many are there? Where is it? What digit is it? What letter is it? "
    "What does it say? What is behind it? {question}"
)


def memory(s):
    name = "a-vl-memory"
    shown = "stored_share,used_share,kv_bytes,latency_ratio"
    form = [] if s.model_given else ["--form", LONG]
    return [s.world(name, "avl", *form), s.table(name, "kind", "--show", shown)]


def performance(s):
    """Whole cache, FastV, H2O and A-VL at about half of it, by the metric of each data set."""
    name = "a-vl-performance"
    policies = "full;fastv:K=2,R=0.5;h2o;a_vl:S=0.45,C=0.3,K=3,P=0.9,T=0.5"
    metrics = s.size("exact", "vqa,anls,exact,cider")
    return [s.world(name, "avl", "--policy", policies, "--metric", metrics), s.table(name, "metric")]


def latency(s):
    build = ["cmake", "--preset", "release", "-DWEIR_BENCH=ON"]
    target = ["cmake", "--build", "--preset", "release", "--target", "selected_bench"]
    return [Step(build), Step(target), Step([str(ROOT / "build/release/bench/selected_bench")])]


ENTRIES = [
    Entry(
        "a-vl/sparsity",
        "share of a picture's tokens with 80 % of its attention",
        PARTLY,
        "twelve generated pictures in one prompt instead of OCR-VQA's; 25 tokens, most of them beyond the answer's end",
        attention,
        vision=True,
    ),
    Entry(
        "a-vl/layers",
        "what the important tokens of two layers have in common (PPCI)",
        PARTLY,
        "as sparsity; the top 30 %, the paper also has 50 % (`weir trace --attention --top`)",
        attention,
        vision=True,
    ),
    Entry(
        "a-vl/continuity",
        "what the important tokens of two steps have in common (PPCI)",
        PARTLY,
        "as sparsity",
        attention,
        vision=True,
    ),
    Entry(
        "a-vl/first-three-tokens",
        "99 % of samples begin with the same three tokens when only 30 % are used",
        PARTLY,
        "50 questions about four generated pictures each; an answer of our model is often shorter than three tokens",
        first_three,
        vision=True,
    ),
    Entry(
        "a-vl/text-decay",
        "attention of text by distance as the answer grows",
        PARTLY,
        "as sparsity",
        attention,
        vision=True,
    ),
    Entry(
        "a-vl/performance",
        "accuracy of FastV, H2O and A-VL on six data sets and five models",
        PARTLY,
        "our world and one model unless --data names a converted data set, which must be one at a time",
        performance,
        vision=True,
    ),
    Entry(
        "a-vl/memory",
        "accuracy and memory by S, C, K, P and T",
        MADE,
        "films of 48 frames instead of single pictures, so that there is something to leave out, and eight questions "
        "before the one that counts, so that T has something too",
        memory,
        vision=True,
    ),
    Entry(
        "a-vl/latency",
        "50.5 % of the whole cache's decoding latency",
        PARTLY,
        "attention alone, on a CPU, at the shapes of LLaVA-1.5-7B and two others; whole steps are in "
        "bench/picture_answer_bench",
        latency,
    ),
]
