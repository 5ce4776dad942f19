# SPDX-License-Identifier: Apache-2.0
"""InfiniPot (EMNLP 2024, arXiv 2410.01518). Its appendix is not among what we have."""

from tools.papers.entry import DRAWING, MADE, MISSING, PARTLY, Entry, Setting, Step

# Table 3's rows, from no component to novelty alone; figure 5's and table 4's, one component after another.
ALPHAS = [
    "infinipot:catalyst=none,alpha=0",
    "infinipot:alpha=0",
    "infinipot:alpha=0.25",
    "infinipot:alpha=0.5",
    "infinipot:alpha=0.75",
    "infinipot:alpha=1",
]
COMPONENTS = [
    "infinipot:catalyst=none,alpha=0,positions=abs",
    "infinipot:catalyst=none,alpha=0",
    "infinipot:alpha=0",
    "infinipot:alpha=0.5",
]
WORDINGS = [f"infinipot:catalyst={name}" for name in ("cap_g", "cap_g1", "cap_g2", "cap_q")]


def longbench(s: Setting, name: str, policies: list[str], pots: str) -> list[Step]:
    flags = ["-f", s.data, "--policy", ";".join(policies), "--pot", pots]
    return [s.eval(name, "longbench", *flags, *(["--n", str(s.n)] if s.n else [])), s.table(name, "dataset")]


def table_1(s):
    pot = s.size(1024, 4096)
    cut = s.eval(
        "infinipot-table-1-cut", "longbench", "-f", s.data, "--policy", "full", "--max-tokens", pot, "--n", str(s.n)
    )
    policies = ["infinipot", "streaming_llm", "h2o", "sirllm", "tova"]
    return [*longbench(s, "infinipot-table-1", policies, pot), cut, s.table("infinipot-table-1-cut", "dataset")]


def table_2(s):
    return longbench(s, "infinipot-table-2", WORDINGS, s.size(1024, 4096))


def table_3(s):
    return longbench(s, "infinipot-table-3", ALPHAS, s.size(1024, 4096))


def figure_6(s):
    name, pots = "infinipot-figure-6", s.size("512,1024,2048", "1024,2048,4096,8192")
    steps = longbench(s, name, ["infinipot"], pots)
    for pot in pots.split(","):
        cut = ["-f", s.data, "--policy", "full", "--max-tokens", pot, "--n", str(s.n)]
        steps.append(s.eval(f"{name}-cut-{pot}", "longbench", *cut))
    return steps


def hits(s: Setting, name: str, policies: list[str]) -> list[Step]:
    flags = ["-f", s.text, "--policy", ";".join(policies), "--pot", s.size(512, 4096), "--cycles", s.size(6, 8)]
    step = s.eval(name, "hits", *flags)
    return [step, s.table(name, "cycle"), s.table(name, "cycle", "--value", "nll", "--digits", "0")]


def figure_2(s):
    return hits(s, "infinipot-figure-2", ["infinipot:alpha=0", "infinipot:catalyst=none,alpha=0", "window"])


def figure_3(s):
    return hits(s, "infinipot-figure-3", ["infinipot:alpha=0", "infinipot", "infinipot:alpha=1"])


def passkeys(s: Setting, name: str, policies: list[str], lengths: str) -> list[Step]:
    flags = ["--mode", "grid", "--policy", ";".join(policies), "--pot", s.size(512, 4096), "--length", lengths]
    depths = ["--depth", "0,0.25,0.5,0.75,1", "--n", s.trials(4)]
    return [s.eval(name, "passkey", *flags, *depths), s.table(name, "length", "--row", "policy")]


def figure_4(s):
    lengths = s.size("1024,4096,16384", "4096,16384,65536,262144,524288,1048576")
    name = "infinipot-figure-4"
    return [*passkeys(s, name, ["infinipot"], lengths), s.draw(name, "heat", "-x", "length", "-r", "depth")]


def figure_5(s):
    policies = [*COMPONENTS, "infinipot:positions=abs"]  # and CR-RoPE out of the whole method
    return passkeys(s, "infinipot-figure-5", policies, s.size("1024,4096,16384", "4096,32768,131072,1048576"))


def efficiency(s):
    """Memory, time to the first token, rates and the whole time, for inputs of several lengths."""
    steps = []
    for n in s.size("8192", "8192,32768,131072").split(","):
        whole = str(int(n) + 128)
        for policy, pot in (
            ("infinipot", "2048"),
            ("streaming_llm", "2048"),
            ("snapkv:capacity=2048", whole),
            ("full", whole),
        ):
            bench = [s.weir, "bench", "-m", s.model, "--policy", policy, "--pot", pot, "--stream", n, "--every", n]
            rows = s.rows(f"infinipot-section-4.5-{n}-{policy.partition(':')[0]}")
            threads = ["-t", str(s.threads)] if s.threads else []
            steps.append(Step([*bench, "--stream-gen", "64", "-o", "jsonl", *threads], rows))
    return steps


ENTRIES = [
    Entry("infinipot/figure-1", "continual context distillation, illustrated", DRAWING),
    Entry(
        "infinipot/table-1",
        "LongBench: InfiniPot against truncation, StreamingLLM, H2O, SirLLM, TOVA",
        PARTLY,
        "52 questions of ten tasks unless --data names more of LongBench; SirLLM and TOVA by their own triggers, "
        "not inside CCD",
        table_1,
        ("longbench",),
    ),
    Entry(
        "infinipot/figure-2",
        "hit rate of the kept tokens against global scoring, with and without a catalyst",
        PARTLY,
        "one text instead of NarrativeQA; global scoring is a pot that holds everything, up to the trained context",
        figure_2,
        ("text",),
    ),
    Entry(
        "infinipot/figure-3",
        "hit rate, overlap and summed novelty with and without novelty scores",
        PARTLY,
        "as figure 2; overlap is between the heads of a layer",
        figure_3,
        ("text",),
    ),
    Entry(
        "infinipot/figure-4",
        "passkeys by length and depth, to 1M tokens",
        PARTLY,
        "lengths to 16,384 with our model (policies.md: 1,048,576); the other papers' models are not run",
        figure_4,
    ),
    Entry(
        "infinipot/table-2",
        "wordings of the catalyst on LongBench",
        PARTLY,
        "as table 1; the published wordings are in an appendix we do not have: ours say the same",
        table_2,
        ("longbench",),
    ),
    Entry(
        "infinipot/table-3",
        "the share of novelty on LongBench, and neither novelty nor catalyst",
        PARTLY,
        "as table 1",
        table_3,
        ("longbench",),
    ),
    Entry(
        "infinipot/figure-5",
        "passkeys without CR-RoPE, with it, with a catalyst, with novelty",
        PARTLY,
        "lengths to 16,384 with our model, which has 8,192 positions",
        figure_5,
    ),
    Entry("infinipot/table-4", "figure 5 in numbers", PARTLY, "as figure 5", figure_5),
    Entry(
        "infinipot/figure-6",
        "LongBench by the size of the pot, against truncation",
        PARTLY,
        "as table 1; pots of 512 to 2,048 with our model",
        figure_6,
        ("longbench",),
    ),
    Entry(
        "infinipot/section-4.5",
        "memory, time to first token, throughput and wall clock",
        MADE,
        "on a CPU; 8,192 tokens with our model (policy-cost.md: 131,072)",
        efficiency,
    ),
    Entry(
        "infinipot/appendix-c.3",
        "LongBench of LLaMA-3.1, 3.2, Gemma-2 and Phi-3",
        MISSING,
        "the appendix is not among what we have; `infinipot/table-1 --model` runs them",
    ),
]
