#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares greedy answers about pictures of weir with llama.cpp's multimodal library (mtmd) on the same pair of files.

    pip install llama-cpp-python gguf numpy
    tools/peer/vision.py --weir build/release/weir -m MODEL.gguf --mmproj MMPROJ.gguf [--image FILE ...] [--pictures 8]

Both answer each prompt about each picture, as a plain prompt and as a chat turn, with the full cache in F32. Pictures
are random ones of the encoder's own size, because the two resize differently (llama.cpp approximates, weir reproduces
the reference to the last bit), and each --image, reported separately as `resized`. For encoders that resize every
picture (SmolVLM), --flat uses pictures of one random colour each, which no filter changes; --side gives the size for
encoders that accept any (Qwen2-VL: a multiple of two patches, within both the file's pixel bounds and llama.cpp's
own).

Since May 2025 llama.cpp puts CLIP's class token after the patches, but assigns positions and takes rows as if it came
first: every patch gets its neighbour's position, the first patch's row is lost, and the class token's row is used (its
issue 25814). --cls-first puts it first again, as its pull request 25844 does, through a library preloaded before
llama.cpp's (needs a C compiler). Without it the two cannot agree. InternVL's encoder has the same defect in a place of
its own: --shift-positions gives weir a copy of the file in which each patch has the position that llama.cpp gives it.
--around TEXT: what the reference processor writes before and after a picture and llama.cpp leaves out (Gemma 3: two
line ends).

Prints a JSON line per answer: how many tokens are the same, and the gap of llama.cpp's top two logits where they
diverge; then a summary. A divergence at a gap below 0.05 is excused: llama.cpp's GELU is an approximation from a table
of half-precision values, which changes the rows by a thousandth of their size. Exits 1 when an answer about a picture
of the encoder's size differs otherwise, or a file is refused.
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp as mtmd

MAX_GAP = 0.05
SHIM = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
void * ggml_concat(void * ctx, void * a, void * b, int dim) {
    void * lib = dlopen(getenv("PEER_VISION_GGML"), RTLD_LAZY);
    void * (*concat)(void *, void *, void *, int) = (void * (*)(void *, void *, void *, int)) dlsym(lib, "ggml_concat");
    const char * (*name)(const void *) = (const char * (*)(const void *)) dlsym(lib, "ggml_get_name");
    return dim == 1 && strcmp(name(b), "v.class_embd") == 0 ? concat(ctx, b, a, dim) : concat(ctx, a, b, dim);
}
"""
PROMPTS = ("the man and the", "What is in this picture?")


def restart_with_shim():
    """Re-executes this program with ggml_concat interposed."""
    if "PEER_VISION_GGML" in os.environ:
        return
    folder = tempfile.mkdtemp()
    source, library = Path(folder) / "shim.c", Path(folder) / "shim.so"
    source.write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    ggml = next((Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.so"))
    os.execve(
        sys.executable,
        [sys.executable, *sys.argv],
        {**os.environ, "LD_PRELOAD": str(library), "PEER_VISION_GGML": str(ggml)},
    )


class Peer:
    def __init__(self, args):
        self.llm = llama_cpp.Llama(
            args.model,
            n_ctx=4096,
            n_batch=512,
            n_threads=args.threads,
            verbose=False,
            type_k=0,
            type_v=0,
            flash_attn=False,
        )
        params = mtmd.mtmd_context_params_default()
        params.use_gpu, params.n_threads, params.print_timings = False, args.threads, False
        self.vision = mtmd.mtmd_init_from_file(args.mmproj.encode(), self.llm._model.model, params)
        if not self.vision:
            sys.exit(f"peer_vision: llama.cpp refuses {args.mmproj}")

    def chat(self, text):
        template = llama_cpp.llama_model_chat_template(self.llm._model.model, None)
        message = (llama_cpp.llama_chat_message * 1)(llama_cpp.llama_chat_message(b"user", text.encode()))
        buffer = ctypes.create_string_buffer(len(text) + 4096)
        n = llama_cpp.llama_chat_apply_template(template, message, 1, True, buffer, len(buffer))
        # SmolVLM's own template has no space between the role and a picture; llama.cpp's copy of it does not look.
        return buffer.raw[:n].decode().replace("User: <__media__>", "User:<__media__>")

    def answer(self, picture, prompt, n_predict):
        """Tokens, each with the gap between the top two logits."""
        self.llm.reset()
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.llm.ctx), True)
        found = mtmd.mtmd_helper_bitmap_init_from_file(self.vision, str(picture).encode(), False)
        bitmap = getattr(found, "bitmap", found)
        if not bitmap:
            sys.exit(f"peer_vision: llama.cpp cannot read {picture}")
        chunks = mtmd.mtmd_input_chunks_init()
        text = mtmd.mtmd_input_text(prompt.encode(), len(prompt.encode()), True, True)
        bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
        if mtmd.mtmd_tokenize(self.vision, chunks, ctypes.byref(text), bitmaps, 1) != 0:
            sys.exit(f"peer_vision: llama.cpp cannot read the prompt {prompt!r}")
        n_past = llama_cpp.llama_pos(0)
        if mtmd.mtmd_helper_eval_chunks(self.vision, self.llm.ctx, chunks, 0, 0, 512, True, ctypes.byref(n_past)) != 0:
            sys.exit("peer_vision: llama.cpp cannot read the picture")
        mtmd.mtmd_bitmap_free(bitmap)
        mtmd.mtmd_input_chunks_free(chunks)
        vocab = llama_cpp.llama_model_get_vocab(self.llm._model.model)
        ids, gaps = [], []
        for _ in range(n_predict):
            logits = np.ctypeslib.as_array(
                llama_cpp.llama_get_logits_ith(self.llm.ctx, -1), shape=(self.llm.n_vocab(),)
            )
            first, second = np.argsort(-logits, kind="stable")[:2]
            gaps.append(float(logits[first] - logits[second]))
            ids.append(int(first))
            if llama_cpp.llama_vocab_is_eog(vocab, ids[-1]):
                break
            one = (llama_cpp.llama_token * 1)(ids[-1])
            if llama_cpp.llama_decode(self.llm.ctx, llama_cpp.llama_batch_get_one(one, 1)) != 0:
                sys.exit("peer_vision: llama.cpp cannot go on")
        return ids, gaps


def shifted(mmproj, folder):
    """A copy whose class token has the last position and whose patches have their predecessors'."""
    path = Path(folder) / "shifted.gguf"
    shutil.copy(mmproj, path)
    reader = gguf.GGUFReader(path, "r+")
    positions = next(tensor.data for tensor in reader.tensors if tensor.name == "v.position_embd.weight")
    positions[:] = np.roll(positions, 1, axis=0)
    reader.data.flush()
    return str(path)


def weir_answer(args, picture, prompt, chat, n_predict):
    """Tokens: the last ones of the trace."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        out = subprocess.run(
            [
                args.weir,
                "run",
                "-m",
                args.model,
                "--mmproj",
                args.weir_mmproj,
                "--image",
                str(picture),
                "-p",
                prompt,
                "-n",
                str(n_predict),
                "--temp",
                "0",
                "--policy",
                "full",
                "-c",
                "4096",
                "-t",
                str(args.threads),
                "-ctk",
                "f32",
                "-ctv",
                "f32",
                "-o",
                "json",
                "--trace",
                str(trace),
            ]
            + (["--chat"] if chat else []),
            capture_output=True,
            text=True,
        )
        if out.returncode:
            sys.exit(f"peer_vision: {out.stderr.strip()}")
        rows = [json.loads(line) for line in trace.read_text().splitlines()]
        ids = [token for row in rows if row["type"] == "tokens" for token in row["ids"]]
        return ids[len(ids) - json.loads(out.stdout)["tokens_generated"] :]


def random_pictures(folder, side, count, flat):
    rng = np.random.default_rng(11)
    for i in range(count):
        path = Path(folder) / f"random{i}.ppm"
        pixels = np.broadcast_to(
            rng.integers(0, 256, (1, 1, 3) if flat else (side, side, 3), np.uint8), (side, side, 3)
        )
        path.write_bytes(b"P6\n%d %d\n255\n" % (side, side) + pixels.tobytes())
        yield path


def asked_pictures(folder, count):
    """(picture, [question]) of the first `count` questions about the present that show one."""
    rows = [json.loads(line) for line in (folder / "streams.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["kind"] == "present" and row.get("frames")]
    return [(folder / row["frames"][-1], [row["question"]]) for row in rows[:count]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", required=True)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--mmproj", required=True)
    parser.add_argument("--image", action="append", default=[], help="picture of any size; may be given several times")
    parser.add_argument("--pictures", type=int, default=8, help="random pictures of the encoder's size")
    parser.add_argument("--side", type=int, help="their width and height, instead of the encoder's own")
    parser.add_argument("--flat", action="store_true", help="of one colour each")
    parser.add_argument("--prompts", help="text file, one prompt a line")
    parser.add_argument(
        "--questions",
        type=Path,
        help="folder of make_streams.py: its first pictures and what is asked about them "
        "alone, instead of random pictures",
    )
    parser.add_argument("-n", type=int, default=48)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--cls-first", action="store_true", help="see above")
    parser.add_argument("--shift-positions", action="store_true", help="see above")
    parser.add_argument("--around", default="", metavar="TEXT", help="see above; \\n is a line end")
    args = parser.parse_args()
    if args.cls_first:
        restart_with_shim()
    field = gguf.GGUFReader(args.mmproj).fields["clip.vision.image_size"]
    side = args.side or int(field.parts[field.data[0]][0])
    prompts = [p for p in Path(args.prompts).read_text().splitlines() if p] if args.prompts else PROMPTS
    peer = Peer(args)
    marker = mtmd.mtmd_default_marker().decode()
    failed, counts = False, {"own_size": [0, 0, 0], "resized": [0, 0, 0]}
    around = args.around.replace("\\n", "\n")
    with tempfile.TemporaryDirectory() as folder:
        args.weir_mmproj = shifted(args.mmproj, folder) if args.shift_positions else args.mmproj
        if args.questions:
            pictures = [(path, "own_size", asked) for path, asked in asked_pictures(args.questions, args.pictures)]
        else:
            pictures = [(path, "own_size", prompts) for path in random_pictures(folder, side, args.pictures, args.flat)]
        for picture, kind, asked in pictures + [(Path(path), "resized", prompts) for path in args.image]:
            for prompt in asked:
                for chat in (False, True):
                    text = around + marker + around + prompt
                    theirs, gaps = peer.answer(picture, peer.chat(text) if chat else text, args.n)
                    ours = weir_answer(args, picture, prompt, chat, args.n)
                    same = next(
                        (i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs))
                    )
                    row = {
                        "picture": picture.name,
                        "kind": kind,
                        "chat": chat,
                        "prompt": prompt,
                        "same": same,
                        "tokens": len(theirs),
                    }
                    if ours == theirs:
                        counts[kind][0] += 1
                    else:
                        row["peer_gap"] = gaps[min(same, len(gaps) - 1)]
                        excused = row["peer_gap"] < MAX_GAP
                        counts[kind][1 if excused else 2] += 1
                        failed = failed or (kind == "own_size" and not excused)
                    print(json.dumps(row, ensure_ascii=False), flush=True)
    for kind, (same, excused, parted) in counts.items():
        if same + excused + parted:
            print(json.dumps({"pictures": kind, "same": same, "excused": excused, "parted": parted}))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
