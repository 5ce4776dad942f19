# SPDX-License-Identifier: Apache-2.0
"""libweir.so through ctypes: the structs, enums and functions of include/weir/weir.h, and where the library is.

tests/python/header_test.py compares every declaration here with the header.
"""

from __future__ import annotations

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import Any

ABI = 1  # WEIR_ABI of the header that this file was written for

PINNED, END_OF_PROMPT, SPECIAL = 1, 2, 4
ENDS = ("end", "length", "stopped", "pot_full", "stop_text")  # weir_end
SHARES = ("all", "layer", "head")
POSITIONS = ("cache", "reset", "abs")
ROWS = (None, "last", "all", "probe")
REDUCES = ("sum", "max", "mean")
VECTORS = (None, "key_diff", "value_norm")
RULE_STATES = ("learns", "watches", "holds")


class _Sized(Structure):
    """A struct that says how large it is; its other fields start as the *_INIT macro sets them."""

    DEFAULTS: dict[str, Any] = {}

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_bytes=ctypes.sizeof(self), **{**self.DEFAULTS, **fields})


class ModelOptions(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("n_threads", c_int32),
        ("device", c_char_p),
        ("mmproj", c_char_p),
        ("chat_template", c_char_p),
        ("chat_template_kwargs", c_char_p),
        ("draft", c_char_p),
        ("packed", c_char_p),
    ]


class ModelInfo(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("n_vocab", c_int32),
        ("n_embd", c_int32),
        ("n_layers", c_int32),
        ("n_ctx_train", c_int32),
        ("weight_bytes", c_int64),
        ("has_chat", c_int32),
        ("has_vision", c_int32),
        ("tokens_a_picture", c_int32),
        ("bos_id", c_int32),
        ("eos_id", c_int32),
        ("weights_mapped", c_int32),
    ]
    DEFAULTS = {"bos_id": -1, "eos_id": -1}


class Slot(Structure):
    _fields_ = [
        ("seq", c_int64),
        ("t_ms", c_int64),
        ("token_id", c_int32),
        ("modality", c_uint8),
        ("pinned", c_uint8),
        ("row", c_uint16),
    ]


class CView(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("group", c_int32),
        ("layer", c_int32),
        ("head", c_int32),
        ("n_layers", c_int32),
        ("n_kv_heads", c_int32),
        ("n_rows", c_int32),
        ("n_unscored", c_int32),
        ("n_seen", c_int64),
        ("n_seen_visual", c_int64),
        ("n_slots", c_size_t),
        ("slots", c_void_p),
        ("scores", c_void_p),
        ("nll", c_void_p),
        ("novelty", c_void_p),
        ("visual", c_void_p),
        ("keep", c_void_p),
        ("n_kept", c_size_t),
        ("scenes", c_void_p),
    ]


SelectCallback = CFUNCTYPE(c_int, POINTER(POINTER(CView)), c_size_t, c_int32, c_void_p)
TargetCallback = CFUNCTYPE(c_int32, c_int32, c_int32, c_void_p)
TrimCallback = CFUNCTYPE(c_int, POINTER(POINTER(CView)), c_size_t, c_void_p)
ProgressCallback = CFUNCTYPE(c_int, c_int64, c_void_p)


class CPolicy(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("name", c_char_p),
        ("select", SelectCallback),
        ("target", TargetCallback),
        ("user", c_void_p),
        ("like", c_char_p),
        ("share", c_int32),
        ("positions", c_int32),
        ("rows", c_int32),
        ("n_last", c_int32),
        ("row_reduce", c_int32),
        ("head_reduce", c_int32),
        ("vector", c_int32),
        ("nll", c_int32),
        ("probe", c_char_p),
        ("min_tokens", c_int32),
        ("trim", TrimCallback),
    ]
    DEFAULTS = {"n_last": 1, "head_reduce": 2}


class SessionOptions(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("policy", c_char_p),
        ("pot_tokens", c_int32),
        ("budget_bytes", c_int64),
        ("chunk_tokens", c_int32),
        ("never_forget", c_int32),
        ("prune", c_char_p),
        ("picture_side", c_int32),
        ("recall", c_char_p),
        ("recall_dir", c_char_p),
        ("recall_disk_bytes", c_int64),
        ("recall_tokens", c_int32),
        ("own_policy", POINTER(CPolicy)),
        ("likelihoods", c_int32),
        ("k_type", c_char_p),
        ("v_type", c_char_p),
        ("rule_tokens", c_int32),
        ("lookup", c_int32),
        ("draft_most", c_int32),
        ("form_bytes", c_int64),
        ("no_media_sandbox", c_int32),
    ]


class SessionInfo(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("pot_tokens", c_int32),
        ("chunk_tokens", c_int32),
        ("n_layers", c_int32),
        ("n_kv_heads", c_int32),
        ("n_groups", c_int32),
        ("policy", c_char_p),
    ]


class GenerateOptions(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("max_tokens", c_int64),
        ("temperature", c_float),
        ("top_k", c_int32),
        ("top_p", c_float),
        ("min_p", c_float),
        ("seed", c_uint64),
        ("ignore_end", c_int32),
        ("json_schema", c_char_p),
        ("grammar", c_char_p),
        ("regex", c_char_p),
        ("choices", POINTER(c_char_p)),
        ("n_choices", c_size_t),
        ("stop_texts", POINTER(c_char_p)),
        ("n_stop_texts", c_size_t),
    ]
    DEFAULTS = {"max_tokens": -1, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}


class RuleOptions(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("id", c_char_p),
        ("on", c_double),
        ("off", c_double),
        ("least", c_double),
        ("n_begin", c_int32),
        ("n_end", c_int32),
        ("n_calibrate", c_int32),
        ("cooldown_ms", c_int64),
    ]
    DEFAULTS = {"on": 3.0, "off": 1.5, "least": 1.5, "n_begin": 2, "n_end": 2, "n_calibrate": 8}


class CRule(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("id", c_char_p),
        ("when", c_char_p),
        ("state", c_int32),
        ("asked", c_int32),
        ("score", c_double),
        ("log_odds", c_double),
    ]


class CEvent(Structure):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("id", c_int64),
        ("began_id", c_int64),
        ("rule", c_char_p),
        ("when", c_char_p),
        ("began", c_int32),
        ("t_ms", c_int64),
        ("since_ms", c_int64),
        ("score", c_double),
        ("log_odds", c_double),
        ("peak", c_double),
        ("from_token", c_int64),
        ("to_token", c_int64),
        ("frames_ms", POINTER(c_int64)),
        ("n_frames", c_size_t),
        ("text", POINTER(c_char)),
        ("n_bytes", c_size_t),
    ]


EventCallback = CFUNCTYPE(c_int, POINTER(CEvent), c_void_p)


class CRuleCost(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("n_checks", c_int64),
        ("n_tokens", c_int64),
        ("seconds", c_double),
    ]


class CCounters(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("seen", c_int64),
        ("kept", c_int64),
        ("dropped", c_int64),
        ("selections", c_int64),
        ("bytes", c_int64),
        ("guessed", c_int64),
        ("guessed_right", c_int64),
    ]


class RecallReport(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("n_passages", c_int64),
        ("n_tokens", c_int64),
        ("best_score", c_double),
        ("held", c_int32),
        ("gated", c_int32),
    ]


class CPassage(_Sized):
    _fields_ = [
        ("struct_bytes", c_size_t),
        ("seq", c_int64),
        ("end", c_int64),
        ("t_ms", c_int64),
        ("score", c_double),
        ("text", POINTER(c_char)),
        ("n_bytes", c_size_t),
    ]


# Buffers of text and of numbers are passed as addresses; c_char_p also takes bytes.
PROTOTYPES: dict[str, list[Any]] = {
    "weir_model_open": [c_char_p, POINTER(ModelOptions), POINTER(c_void_p)],
    "weir_model_describe": [c_void_p, POINTER(ModelInfo)],
    "weir_model_encode": [c_void_p, c_char_p, c_size_t, c_int, c_void_p, c_size_t, POINTER(c_size_t)],
    "weir_model_decode": [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_size_t)],
    "weir_session_open": [c_void_p, POINTER(SessionOptions), POINTER(c_void_p)],
    "weir_session_fork": [c_void_p, c_char_p, POINTER(c_void_p)],
    "weir_session_describe": [c_void_p, POINTER(SessionInfo)],
    "weir_session_on_progress": [c_void_p, ProgressCallback, c_void_p],
    "weir_session_set_time": [c_void_p, c_int64],
    "weir_session_append_tokens": [c_void_p, c_void_p, c_size_t, c_uint32],
    "weir_session_append_text": [c_void_p, c_char_p, c_size_t, c_uint32],
    "weir_session_score": [c_void_p, c_void_p, c_size_t, c_uint32, c_void_p],
    "weir_session_logits": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    "weir_session_begin_answer": [c_void_p, POINTER(GenerateOptions)],
    "weir_session_next": [c_void_p, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_int)],
    "weir_session_next_tokens": [c_void_p, c_int32, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_int)],
    "weir_session_end_answer": [c_void_p, POINTER(c_size_t), POINTER(c_int)],
    "weir_session_begin_chat": [c_void_p, c_char_p, c_size_t, c_uint32],
    "weir_session_say": [c_void_p, c_char_p, c_size_t, c_uint32],
    "weir_session_say_tokens": [c_void_p, c_void_p, c_size_t, c_uint32],
    "weir_session_begin_ask": [c_void_p, c_char_p, c_size_t, POINTER(GenerateOptions)],
    "weir_session_see_file": [c_void_p, c_char_p, c_uint32],
    "weir_session_see_pixels": [c_void_p, c_void_p, c_int32, c_int32, c_int64, c_uint32],
    "weir_session_see_video": [c_void_p, c_char_p, c_double, c_uint32, POINTER(c_int64)],
    "weir_session_add_rule": [c_void_p, c_char_p, c_size_t, POINTER(RuleOptions)],
    "weir_session_remove_rule": [c_void_p, c_char_p],
    "weir_session_rule": [c_void_p, c_size_t, POINTER(CRule)],
    "weir_session_on_event": [c_void_p, EventCallback, c_void_p],
    "weir_session_rule_cost": [c_void_p, POINTER(CRuleCost)],
    "weir_session_recalled": [c_void_p, POINTER(RecallReport)],
    "weir_session_recalled_passage": [c_void_p, c_size_t, POINTER(CPassage)],
    "weir_session_flush": [c_void_p],
    "weir_session_copy_archive": [c_void_p, c_char_p],
    "weir_session_counters": [c_void_p, POINTER(CCounters)],
    "weir_session_slots": [c_void_p, c_int32, POINTER(c_void_p), POINTER(c_size_t)],
    "weir_session_trace": [c_void_p, c_char_p],
    "weir_session_reset": [c_void_p],
    "weir_session_save": [c_void_p, c_void_p, c_size_t, POINTER(c_size_t)],
    "weir_session_restore": [c_void_p, c_char_p, c_size_t],
}


def _path() -> str:
    """WEIR_LIBRARY, or the one in this package."""
    if given := os.environ.get("WEIR_LIBRARY"):
        return given
    found = sorted((Path(__file__).parent / "_lib").glob("libweir.so*"))
    if not found:
        raise ImportError(
            "this copy of the package weir has no libweir.so in it: install a wheel, or set WEIR_LIBRARY to the "
            "libweir.so of a build"
        )
    return str(found[0])


def _load(path: str) -> Any:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"libweir.so cannot be loaded: {error}") from error
    try:
        library.weir_abi.restype = c_int32
        abi = library.weir_abi()
    except AttributeError:
        abi = 0
    if abi != ABI:
        raise ImportError(f"{path} has the interface {abi}, this package was written for {ABI}")
    library.weir_last_error.restype = c_char_p
    library.weir_version.restype = c_char_p
    for name in ("weir_model_close", "weir_session_close"):
        function = getattr(library, name)
        function.argtypes, function.restype = [c_void_p], None
    for name, argtypes in PROTOTYPES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = argtypes, c_int
    return library


PATH = os.path.abspath(_path())
LIB = _load(PATH)
__version__: str = LIB.weir_version().decode()
