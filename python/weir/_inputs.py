# SPDX-License-Identifier: Apache-2.0
"""What callers give, as what the C API takes: text, token ids or pixels."""

from __future__ import annotations

import operator
import os
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Text(NamedTuple):
    utf8: bytes


class Ids(NamedTuple):
    ids: npt.NDArray[np.int32]


class Pixels(NamedTuple):
    rgb: npt.NDArray[np.uint8]  # [height, width, 3]


class PictureFile(NamedTuple):
    path: bytes


Input = Text | Ids | Pixels | PictureFile


def utf8(text: str | bytes | bytearray | memoryview[Any], what: str) -> bytes:
    """The bytes of a text. A str with half a surrogate pair is no text."""
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{what} is no text: {error}") from None
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise TypeError(f"{what} must be str or bytes, not {type(text).__name__}")


def c_text(text: str | None, what: str) -> bytes | None:
    """The same for a text that ends with a zero byte."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{what} must be str, not {type(text).__name__}")
    out = utf8(text, what)
    if b"\0" in out:
        raise ValueError(f"{what} must not contain a zero character")
    return out


def whole(value: Any, what: str, *, least: int = 0, bits: int = 32) -> int:
    """A whole number that a C integer holds: ctypes itself would cut it off in silence."""
    try:
        out = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be a whole number, not {value!r}") from None
    if not least <= out < 1 << (bits - 1):
        raise ValueError(f"{what} is {out}: expected {least} to {(1 << (bits - 1)) - 1}")
    return out


def real(value: Any, what: str) -> float:
    """A number with a fraction."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} must be a number, not {value!r}") from None


def path_bytes(path: str | os.PathLike[str], what: str) -> bytes:
    out = os.fsencode(path)
    if not out or b"\0" in out:
        raise ValueError(f"{what} is no path: {path!r}")
    return out


def token_ids(given: Any) -> npt.NDArray[np.int32]:
    """Token ids of any integer type as int32, [n]."""
    array = as_array(given)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"token ids are a list of integers, not {array.dtype} of shape {list(array.shape)}")
    if array.min() < 0 or array.max() > np.iinfo(np.int32).max:
        raise ValueError(f"token ids lie between 0 and the vocabulary's size; there is {array.min()} to {array.max()}")
    return np.ascontiguousarray(array, np.int32)


def as_array(given: Any) -> npt.NDArray[Any]:
    """NumPy's view of a sequence, an array, or a tensor of another library on the CPU (dlpack)."""
    if isinstance(given, np.ndarray):
        return given
    if hasattr(given, "detach") and hasattr(given, "cpu"):  # torch: from any device, without its graph
        given = given.detach().cpu()
    if hasattr(given, "__dlpack__"):
        try:
            return np.from_dlpack(given)
        except (BufferError, RuntimeError, TypeError, AttributeError):
            pass  # __array__ below copies what dlpack cannot share
    return np.asarray(given)


def pixels(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """[height, width, 3] of uint8: from grey, RGB or RGBA, channels last or, for three of them, first; numbers with a
    fraction are shares of full brightness."""
    if array.ndim == 2:
        array = np.repeat(array[:, :, None], 3, axis=2)
    if array.ndim != 3:
        raise ValueError(f"a picture has 2 or 3 axes, not the shape {list(array.shape)}")
    if array.shape[2] not in (1, 3, 4) and array.shape[0] in (1, 3):
        array = np.moveaxis(array, 0, 2)
    if array.shape[2] == 1:
        array = np.repeat(array, 3, axis=2)
    if array.shape[2] not in (3, 4):
        raise ValueError(f"a picture's last axis is its colours, 1, 3 or 4 of them; the shape is {list(array.shape)}")
    array = array[:, :, :3]
    if array.dtype.kind == "f":
        if array.size and not (array.min() >= 0 and array.max() <= 1):
            raise ValueError("a picture of floats has values from 0 to 1")
        array = np.rint(array * 255).astype(np.uint8)
    if array.dtype != np.uint8:
        raise TypeError(f"a picture is made of uint8, or of floats from 0 to 1, not of {array.dtype}")
    if 0 in array.shape:
        raise ValueError(f"a picture without pixels: {list(array.shape)}")
    return np.ascontiguousarray(array)


def classify(given: Any) -> Input:
    """Says what an input is."""
    if isinstance(given, (str, bytes, bytearray, memoryview)):
        return Text(utf8(given, "the input"))
    if isinstance(given, os.PathLike):
        return PictureFile(path_bytes(given, "the picture"))
    if hasattr(given, "convert") and hasattr(given, "tobytes") and hasattr(given, "size"):  # PIL
        return Pixels(pixels(np.asarray(given.convert("RGB"))))
    if isinstance(given, (dict, set)) or not any(hasattr(given, n) for n in ("__len__", "__array__", "__dlpack__")):
        raise TypeError(f"an input is text, token ids, a picture or the path of one, not {type(given).__name__}")
    array = as_array(given)
    if array.ndim <= 1:
        return Ids(token_ids(array))
    return Pixels(pixels(array))
