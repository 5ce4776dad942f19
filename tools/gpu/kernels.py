#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Registers, spills, shared memory and occupancy of every CUDA kernel, as the compiler reports them.

    tools/gpu/kernels.py [--arch sm_90] [--nvcc nvcc] [--markdown docs/gpu.md]
    tools/gpu/kernels.py --log build.log         a log of CMAKE_CUDA_FLAGS="-Xptxas -v"; compiles nothing

Compiles the files of src/backend/cuda, for every capability in the program unless --arch names some, and prints a
Markdown table with the worst figures over all capabilities and those on the newest; with --markdown it replaces the
table between the file's marks. Exit code 1 when a kernel spills or keeps an array in local memory.

Needs a configured build folder (cmake --preset release): the list of element types is generated there.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = "<!-- kernels: tools/gpu/kernels.py -->\n", "<!-- end of kernels -->\n"

# Threads per block, and bytes of dynamic shared memory at heads of 128 and rows of 4096, as in the launchers.
DIM = 128
LAUNCH = {
    **{f"AttendFew<{n}>": (128, 2 * 32 * 2 * (2 * DIM + 32) + 4 * n * (2 * DIM + 2 * 32 + 5)) for n in (1, 4)},
    "CombineSplits": (128, 4 * 128),
    "PrepareQueries": (128, 0),
    "ScoreFew": (128, 0),
    "ScoreMany<64>": (256, 2 * 2 * 64 * 72),
    "ScoreMany<128>": (256, 2 * 2 * 64 * 136),
    "PutTogether": (128, 0),
    "AttendMany<64>": (256, 2 * 2 * 2 * 64 * 72),
    "AttendMany<128>": (256, 2 * 2 * 2 * 64 * 136),
    "Few": (128, 0),
    "Many": (128, 2 * 64 * 80 + 4 * 64 * (4 + 2 + 2 + 2)),
    "StoreRows": (128, 0),
    "CompactRows": (512, 16384),
    "KeyDifferences": (256, 4 * (8 * DIM + 32)),
    "ValueNorms": (256, 0),
    "AddTile": (256, 128),
    "RmsNormRows": (256, 128),
    "LayerNormRows": (256, 128),
    "Clear": (1, 0),
    "Probe": (1, 0),
    "Multiply": (128, 0),
    "CopyRows": (128, 0),
    "WeightRow": (256, 128),
    "MeanOfRecent": (256, 4 * (8 * DIM + 32)),
    "KeepLargest": (512, 8 * 4096),
    "Unpack": (512, 0),
    **{f"MixTile<{n}>": (256, 4 * (64 * 68 + 2 * 64 * 36)) for n in (4, 6, 8)},
}
# Kernels that may use local memory: sines of large angles in double precision, once per pass for a chunk's rows.
COLD = {"AnglesEach"}
# Per multiprocessor: registers, threads, blocks, shared memory in bytes.
LIMITS = {
    "80": (65536, 2048, 32, 164 << 10),
    "86": (65536, 1536, 16, 100 << 10),
    "87": (65536, 1536, 16, 164 << 10),
    "89": (65536, 1536, 24, 100 << 10),
    "90": (65536, 2048, 32, 228 << 10),
}


def generated():
    """The folder of generated headers, of any build."""
    lists = sorted((ROOT / "build").glob("*/generated/quant/dtype_list.h"))
    if not lists:
        sys.exit("kernels: no build folder has generated/quant/dtype_list.h; make one: cmake --preset release")
    return lists[0].parents[1]


def types():
    """Names of the element types, in the order of DType: kernels are instantiated by its numbers."""
    return re.findall(r"^  k(\w+),", (generated() / "quant/dtype_list.h").read_text(), flags=re.M)


def compile_file(args, source):
    with tempfile.TemporaryDirectory() as folder:
        command = [
            args.nvcc,
            "-std=c++20",
            "-fmad=false",
            "-O3",
            "-Xptxas",
            "-v",
            "-I",
            str(ROOT / "src"),
            "-I",
            str(generated()),
            "-DFMT_CONSTEVAL=",  # as cmake/cuda.cmake
            "-DFMT_USE_CONSTEXPR=1",
            "-fatbin",
            "-o",
            f"{folder}/x.fatbin",
            str(source),
        ]
        for arch in args.arch:
            command += ["-gencode", f"arch=compute_{arch.removeprefix('sm_')},code={arch}"]
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"kernels: {source.name}: {result.stderr[-2000:]}")
    return result.stderr


def split_log(text):
    """(file, its section) of ninja's output."""
    parts = re.split(r"^\[\d+/\d+\] Building CUDA object \S*?/(\w+\.cu)\.o\n", text, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def kernels(text, file, names_of_types):
    """((file, kernel), capability, registers, stack, spills) of every report."""
    found = re.findall(r"Compiling entry function '(\w+)' for '(sm_\d+)'", text)
    names = [name for name, _ in found]
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True).stdout.split("\n")
    parts = re.split(r"Compiling entry function '\w+'[^\n]*\n", text)[1:]
    for (_, arch), name, part in zip(found, plain, parts):
        short = re.search(
            r"(?:anonymous namespace\)::|_INTERNAL\w+::|::)(\w+(?:<.*?>)?)\(",
            name.replace("(anonymous namespace)::", "::"),
        )
        label = re.sub(
            r"\(weir::DType\)(\d+)", lambda m: names_of_types[int(m.group(1))], short.group(1) if short else name
        )
        stack, stores, loads = map(
            int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", part).groups()
        )
        registers = int(re.search(r"Used (\d+) registers", part).group(1))
        yield (file, re.sub(r"\(\w+\)", "", label)), arch, registers, stack, stores + loads


def launch(name):
    return LAUNCH.get(name) or LAUNCH.get(name.split("<")[0], (256, 0))


def occupancy(arch, name, registers):
    threads, shared = launch(name)
    all_registers, all_threads, all_blocks, all_shared = LIMITS[arch.removeprefix("sm_")]
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256
    blocks = min(
        all_blocks, all_threads // (warps * 32), all_registers // per_warp // warps, all_shared // (shared + 1024)
    )
    return 100 * blocks * warps * 32 // all_threads


def table(found):
    newest = max(arch for of in found.values() for arch in of)
    out = (
        f"| file | kernel | threads | shared memory | registers, {newest} | most | occupancy, {newest} | least | "
        "stack, spills |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    for (file, name), of in sorted(found.items()):
        threads, shared = launch(name)
        percent = {arch: occupancy(arch, name, registers) for arch, (registers, _, _) in of.items()}
        least = min(percent, key=lambda arch: (percent[arch], arch))
        out += (
            f"| {file} | {name} | {threads} | {shared} | {of[newest][0]} | {max(r for r, _, _ in of.values())} | "
            f"{percent[newest]} % | "
            f"{percent[least]} % ({least}) | {max(s for _, s, _ in of.values())}, "
            f"{max(s for _, _, s in of.values())} |\n"
        )
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", nargs="+", default=[f"sm_{a}" for a in LIMITS], choices=[f"sm_{a}" for a in LIMITS])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--log", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("-j", type=int, default=1)
    args = parser.parse_args()
    if args.log:
        logs = split_log(args.log.read_text())
    else:
        sources = sorted((ROOT / "src/backend/cuda").glob("*.cu"))
        with ThreadPoolExecutor(args.j) as pool:
            logs = list(zip((s.name for s in sources), pool.map(lambda source: compile_file(args, source), sources)))
    found = {}
    names_of_types = types()
    for file, log in logs:
        for kernel, arch, *figures in kernels(log, file, names_of_types):
            found.setdefault(kernel, {})[arch] = figures
    if not found:
        sys.exit("kernels: no kernel was reported")
    if args.markdown:
        text = args.markdown.read_text()
        before, rest = text.split(BEGIN)
        args.markdown.write_text(before + BEGIN + table(found) + END + rest.split(END)[1])
    else:
        print(table(found), end="")
    bad = False
    for (file, name), of in sorted(found.items()):
        for arch, (_, stack, spills) in sorted(of.items()):
            if (stack or spills) and name not in COLD:
                bad = True
                print(
                    f"kernels: {file}: {name} on {arch}: {stack} bytes of stack, {spills} bytes of spills",
                    file=sys.stderr,
                )
    return bad


if __name__ == "__main__":
    sys.exit(main())
