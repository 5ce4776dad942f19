#!/usr/bin/env python3
"""Registers, spills, shared memory and occupancy of every CUDA kernel, as the compiler reports them.

    tools/gpu_kernels.py [--arch sm_90] [--nvcc nvcc] [--markdown docs/gpu.md]

Compiles the files of src/backend/cuda and prints a Markdown table; with --markdown it replaces the table between the file's marks.
Exit code 1 when a kernel spills or keeps an array in local memory.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- kernels: tools/gpu_kernels.py -->\n", "<!-- end of kernels -->\n"

# Threads of a block, and bytes of shared memory it is launched with at heads of 128 and rows of 4096: what the launchers say.
DIM = 128
LAUNCH = {
    "AttendTile": (128, 4 * (32 * (DIM + 1) + 2 * 16 * DIM + 16 * 32 + 3 * 16)), "CombineSplits": (128, 0),
    "PrepareQueries": (256, 0), "ScoreTile": (128, 4 * (32 * (DIM + 1) + 128)), "PutTogether": (128, 0),
    "AttendMany<64>": (128, 2 * (64 * 72 + 64 * 72)), "AttendMany<128>": (128, 2 * (64 * 136 + 128 * 72)), "Few": (128, 0), "Many": (128, 2 * 64 * 80 + 4 * 64 * (4 + 2 + 2 + 2)), "StoreRows": (128, 0), "CompactRows": (512, 16384),
    "KeyDifferences": (256, 4 * (8 * DIM + 32)), "ValueNorms": (256, 0), "AddTile": (256, 128), "RmsNormRows": (256, 128),
    "LayerNormRows": (256, 128), "Clear": (1, 0),
}
# Kernels that may use local memory: sines of large angles in double precision, once a pass for a chunk's rows.
COLD = {"AnglesEach"}
# Of a multiprocessor: registers, threads, blocks, shared memory in bytes.
LIMITS = {"80": (65536, 2048, 32, 164 << 10), "86": (65536, 1536, 16, 100 << 10), "87": (65536, 1536, 16, 164 << 10),
          "89": (65536, 1536, 24, 100 << 10), "90": (65536, 2048, 32, 228 << 10)}


def compile_file(args, source):
    with tempfile.TemporaryDirectory() as folder:
        command = [args.nvcc, "-std=c++20", f"-arch={args.arch}", "-fmad=false", "-O3", "-Xptxas", "-v", "-I", str(ROOT / "src"), "-cubin",
                   "-o", f"{folder}/x.cubin", str(source)]
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"gpu_kernels: {source.name}: {result.stderr[-2000:]}")
    return result.stderr


def kernels(text, file):
    names = re.findall(r"Compiling entry function '(\w+)'", text)
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.split("\n")
    parts = re.split(r"Compiling entry function '\w+'[^\n]*\n", text)[1:]
    for name, part in zip(plain, parts):
        short = re.search(r"(?:anonymous namespace\)::|_INTERNAL\w+::|::)(\w+(?:<.*?>)?)\(", name.replace("(anonymous namespace)::", "::"))
        label = re.sub(r"\(weir::DType\)(\d+)", lambda m: TYPES[int(m.group(1))], short.group(1) if short else name)
        stack, stores, loads = map(int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part).groups())
        registers = int(re.search(r"Used (\d+) registers", part).group(1))
        yield file, re.sub(r"\(\w+\)", "", label), registers, stack, stores + loads


TYPES = ["F32", "F16", "BF16", "I32", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]


def occupancy(arch, name, registers):
    threads, shared = LAUNCH.get(name) or LAUNCH.get(name.split("<")[0], (256, 0))
    all_registers, all_threads, all_blocks, all_shared = LIMITS[arch.removeprefix("sm_")]
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    blocks = min(all_blocks, all_threads // (warps * 32), all_registers // per_warp // warps, all_shared // (shared + 1024))
    return threads, shared, 100 * blocks * warps * 32 // all_threads


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", default="sm_90", choices=[f"sm_{a}" for a in LIMITS])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("-j", type=int, default=1)
    args = parser.parse_args()
    sources = sorted((ROOT / "src/backend/cuda").glob("*.cu"))
    with ThreadPoolExecutor(args.j) as pool:
        logs = list(pool.map(lambda source: compile_file(args, source), sources))
    rows = sorted({row for source, log in zip(sources, logs) for row in kernels(log, source.name)})
    table = f"| file | kernel | registers | threads | shared memory | occupancy, {args.arch} | stack, spills |\n|---|---|---|---|---|---|---|\n"
    for file, name, registers, stack, spills in rows:
        threads, shared, percent = occupancy(args.arch, name, registers)
        table += f"| {file} | {name} | {registers} | {threads} | {shared} | {percent} % | {stack}, {spills} |\n"
    if args.markdown:
        text = args.markdown.read_text()
        before, rest = text.split(BEGIN)
        args.markdown.write_text(before + BEGIN + table + END + rest.split(END)[1])
    else:
        print(table, end="")
    bad = [row for row in rows if (row[3] or row[4]) and row[1] not in COLD]
    for file, name, _, stack, spills in bad:
        print(f"gpu_kernels: {file}: {name}: {stack} bytes of stack, {spills} bytes of spills", file=sys.stderr)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
