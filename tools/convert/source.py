# SPDX-License-Identifier: Apache-2.0
"""Reads a Hugging Face model folder: config.json and safetensors shards, without torch."""

import json
import math
from pathlib import Path

import numpy as np


class ConvertError(Exception):
    """The folder cannot be converted; the message gives the reason and the place."""


_NUMPY = {
    "U8": np.dtype("u1"),
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
}


def _read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConvertError(f"{path}: no such file") from None
    except ValueError as e:
        raise ConvertError(f"{path}: not valid JSON: {e}") from None


class Source:
    """A model folder. `config` is the text model's configuration; tensors are read one at a time."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.config = _read_json(self.folder / "config.json")
        names = self.config.get("architectures") or []
        if not names:
            raise ConvertError(f"{self.folder}/config.json: no `architectures` entry")
        self.hf_name = names[0]
        self._where = {}  # tensor name -> (file, dtype, shape, first byte, bytes)
        shards = sorted(self.folder.glob("*.safetensors"))
        if not shards:
            raise ConvertError(f"{self.folder}: no *.safetensors file")
        for shard in shards:
            self.index(shard)
        self._used = set()

    def index(self, path):
        """Adds the tensors of a safetensors file."""
        size = path.stat().st_size
        with open(path, "rb") as f:
            n = int.from_bytes(f.read(8), "little")
            if size < 8 or n > size - 8:
                raise ConvertError(f"{path}: header of {n} bytes does not fit a file of {size} bytes")
            try:
                header = json.loads(f.read(n))
            except ValueError as e:
                raise ConvertError(f"{path}: header is not valid JSON: {e}") from None
        for name, info in header.items():
            if name == "__metadata__":
                continue
            begin, end = info["data_offsets"]
            dtype = _NUMPY.get(info["dtype"])
            if dtype is None:
                raise ConvertError(f"{path}: tensor {name} has element type {info['dtype']}, which is not converted")
            n_bytes = math.prod(info["shape"]) * dtype.itemsize
            if begin < 0 or end - begin != n_bytes or 8 + n + end > size:
                raise ConvertError(f"{path}: tensor {name} has bytes {begin}..{end}, which contradict its shape")
            if name in self._where:
                raise ConvertError(f"{path}: tensor {name} is in two shards")
            self._where[name] = (path, info["dtype"], info["shape"], 8 + n + begin)

    def has(self, name):
        return name in self._where

    def tensor(self, name):
        """The tensor as float32, outermost dimension first."""
        if name not in self._where:
            raise ConvertError(f"{self.folder}: tensor {name} is missing")
        path, kind, shape, offset = self._where[name]
        self._used.add(name)
        data = np.memmap(path, dtype=_NUMPY[kind], mode="r", offset=offset, shape=tuple(shape))
        if kind == "BF16":
            return (data.astype(np.uint32) << 16).view(np.float32)
        return np.asarray(data, dtype=np.float32)

    def shape(self, name):
        if name not in self._where:
            raise ConvertError(f"{self.folder}: tensor {name} is missing")
        return self._where[name][2]

    def raw(self, name):
        """A tensor of bytes as it is."""
        if name not in self._where:
            raise ConvertError(f"{self.folder}: tensor {name} is missing")
        path, kind, shape, offset = self._where[name]
        if kind != "U8":
            raise ConvertError(f"{path}: tensor {name} has element type {kind}, expected bytes")
        self._used.add(name)
        return np.memmap(path, dtype=np.uint8, mode="r", offset=offset, shape=tuple(shape))

    def ignore(self, suffix):
        """Marks tensors that the file does not need (buffers saved by old versions)."""
        self._used.update(n for n in self._where if n.endswith(suffix))

    def ignore_prefix(self, *prefixes):
        """Marks tensors of another part of the model."""
        self._used.update(n for n in self._where if n.startswith(prefixes))

    def rename(self, prefixes):
        """Renames tensors by (old prefix, new prefix) pairs, applied in order wherever they match."""
        renamed = {}
        for name, where in self._where.items():
            for old, new in prefixes:
                if name.startswith(old):
                    name = new + name[len(old) :]
            if name in renamed:
                raise ConvertError(f"{self.folder}: two tensors are called {name}")
            renamed[name] = where
        self._where = renamed

    def optional_json(self, name):
        path = self.folder / name
        return _read_json(path) if path.is_file() else {}

    def unused(self):
        return sorted(set(self._where) - self._used)

    def get(self, key, default=None):
        value = self.config.get(key)
        return default if value is None else value

    def need(self, key):
        value = self.config.get(key)
        if value is None:
            raise ConvertError(f"{self.folder}/config.json: no `{key}`")
        return value

    def head_dim(self):
        return self.get("head_dim") or self.need("hidden_size") // self.need("num_attention_heads")

    def rope(self):
        """(kind, parameters, theta): a unified view of `rope_scaling` (old) and `rope_parameters` (new); if layers with
        and without a sliding window differ, those of the latter."""
        params = dict(self.get("rope_scaling") or {})
        params.update(self.get("rope_parameters") or {})
        params = params.get("full_attention", params)
        kind = params.get("rope_type") or params.get("type") or "default"
        theta = params.get("rope_theta") or self.get("rope_theta") or self.get("rotary_emb_base", 10000.0)
        return {"su": "longrope", "mrope": "default"}.get(kind, kind), params, float(theta)

    def n_rot(self):
        """Number of elements per head that RoPE rotates."""
        params = self.rope()[1]
        part = params.get("partial_rotary_factor") or self.get("partial_rotary_factor") or self.get("rotary_pct", 1.0)
        return int(self.head_dim() * part)

    def original_context(self, params):
        return int(
            params.get("original_max_position_embeddings")
            or self.get("original_max_position_embeddings")
            or self.need("max_position_embeddings")
        )
