# SPDX-License-Identifier: Apache-2.0
"""Model files."""

from __future__ import annotations

import ctypes
import json
import os
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from . import _library as lib
from ._handle import Handle, Turn, refuse_pickle
from ._inputs import c_text, path_bytes, token_ids, utf8, whole
from .errors import ClosedError, check

if TYPE_CHECKING:
    from .policy import Policy
    from .session import Session


class Model:
    """A GGUF file, loaded once for any number of sessions. One thread at a time computes with it; others wait.

    path: the model file. mmproj: its vision encoder. threads: 0 for one per usable core. device: "cpu", "cuda", "auto"
    or "ref". chat_template: the name of a template or the text of a Jinja template, with chat_template_kwargs; None for
    the file's own. draft: a smaller model of the same vocabulary that guesses what comes next, so that answers take
    fewer steps; no answer changes with it. packed: a folder for the weights as the CPU's kernels want them, as large as
    the model; a later start maps them from there (`weights_mapped`). Errors: NotFoundError, CorruptError,
    UnsupportedError, InvalidArgumentError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        mmproj: str | os.PathLike[str] | None = None,
        threads: int = 0,
        device: str = "cpu",
        chat_template: str | None = None,
        chat_template_kwargs: dict[str, Any] | None = None,
        draft: str | os.PathLike[str] | None = None,
        packed: str | os.PathLike[str] | None = None,
    ) -> None:
        self._handle: Handle | None = None
        self.path = os.fspath(path)
        options = lib.ModelOptions(
            n_threads=whole(threads, "threads"),
            device=c_text(device, "device"),
            mmproj=None if mmproj is None else path_bytes(mmproj, "mmproj"),
            chat_template=c_text(chat_template, "chat_template"),
            chat_template_kwargs=None if chat_template_kwargs is None else json.dumps(chat_template_kwargs).encode(),
            draft=None if draft is None else path_bytes(draft, "draft"),
            packed=None if packed is None else path_bytes(packed, "packed"),
        )
        out = ctypes.c_void_p()
        check(lib.LIB.weir_model_open(path_bytes(path, "the model"), ctypes.byref(options), ctypes.byref(out)))
        assert out.value is not None
        self._handle = Handle(out.value, lib.LIB.weir_model_close)
        self._turn = Turn()
        info = lib.ModelInfo()
        check(lib.LIB.weir_model_describe(self._handle.pointer, ctypes.byref(info)))
        self.n_vocab: int = info.n_vocab
        self.n_embd: int = info.n_embd
        self.n_layers: int = info.n_layers
        self.n_ctx_train: int = info.n_ctx_train
        self.weight_bytes: int = info.weight_bytes
        self.has_chat: bool = info.has_chat != 0
        self.has_vision: bool = info.has_vision != 0
        self.tokens_a_picture: int = info.tokens_a_picture
        self.bos_id: int | None = info.bos_id if info.bos_id >= 0 else None
        self.eos_id: int | None = info.eos_id if info.eos_id >= 0 else None
        self.weights_mapped: bool = info.weights_mapped != 0

    def _open_handle(self) -> Handle:
        if self._handle is None:
            raise ClosedError("the model was closed")
        self._handle.check_process("model")
        return self._handle

    def encode(self, text: str | bytes, *, special: bool = False) -> npt.NDArray[np.int32]:
        """Token ids of a text, [n] of int32. special: with the begin and end tokens that the file asks for. TypeError
        for what is no text."""
        data, handle = utf8(text, "the text"), self._open_handle()
        out = np.empty(len(data) + 8, np.int32)  # a token has at least one byte, as a rule
        n = ctypes.c_size_t()
        while True:
            check(
                lib.LIB.weir_model_encode(
                    handle.pointer, data, len(data), int(special), out.ctypes.data, len(out), ctypes.byref(n)
                )
            )
            if n.value <= len(out):
                return out[: n.value].copy()
            out = np.empty(n.value, np.int32)

    def decode(self, ids: Any) -> str:
        """The text of token ids; control tokens are left out. InvalidArgumentError for ids outside the vocabulary."""
        array, handle = token_ids(ids), self._open_handle()
        n = ctypes.c_size_t()
        out = ctypes.create_string_buffer(16 * len(array) + 16)
        while True:
            check(
                lib.LIB.weir_model_decode(handle.pointer, array.ctypes.data, len(array), out, len(out), ctypes.byref(n))
            )
            if n.value <= len(out):
                return out.raw[: n.value].decode("utf-8", "replace")
            out = ctypes.create_string_buffer(n.value)

    def session(
        self,
        *,
        pot: int = 0,
        budget: int = 0,
        policy: str | Policy = "weir",
        system: str | None = None,
        pin: str | None = None,
        chunk: int = 0,
        never_forget: bool = False,
        prune: str | None = None,
        picture_side: int = 0,
        recall: str | None = None,
        recall_dir: str | os.PathLike[str] | None = None,
        recall_disk: int = 0,
        recall_tokens: int = 0,
        likelihoods: bool = False,
        cache_type: str | tuple[str, str] = "f16",
        rule_tokens: int = 96,
        form_bytes: int = 16 << 20,
        media_sandbox: bool = True,
        lookup: int = 0,
        draft_most: int | None = None,
    ) -> Session:
        """Opens a session: one stream with a pot of its own, whose memory is reserved now and never grows.

        pot: tokens kept per layer and head; 0: as many as fit in `budget`, in bytes, at most 4,096. policy: "NAME" or
        "NAME:key=value,..." as in `weir policies`, or an object of a weir.Policy. system: the system message. pin: a
        text that is read first. Neither is ever forgotten. chunk: tokens per forward pass. never_forget: a full pot is
        an OverBudgetError. prune, picture_side: for pictures, as in `weir pruners`. recall: "words" or another of `weir
        recall`, keeps everything on disk, in recall_dir or in files without names, up to recall_disk bytes, and brings
        back what a question is about into room for recall_tokens. likelihoods: Session.score() can be used.
        cache_type: of stored keys and values, or of each: "f32", "f16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0" or
        "small". rule_tokens: slots beside the pot that are kept free for the question of a rule (Session.when()), in
        tokens; 0: there are no rules. form_bytes: memory for answers that are held to a form (schema=, regex=, ...), a
        part of the session's; an answer whose form needs more is an UnsupportedError; 0: there are no forms.
        media_sandbox: ffmpeg reaches nothing but itself and the source, on Linux; False for one that cannot start so.
        lookup: several tokens a step, guessed from what was read and written before, at most so many; draft_most: by
        the model's draft, 0 for none. Answers stay the same.
        """
        from .session import Session

        return Session(
            self,
            pot=pot,
            budget=budget,
            policy=policy,
            system=system,
            pin=pin,
            chunk=chunk,
            never_forget=never_forget,
            prune=prune,
            picture_side=picture_side,
            recall=recall,
            recall_dir=recall_dir,
            recall_disk=recall_disk,
            recall_tokens=recall_tokens,
            likelihoods=likelihoods,
            cache_type=cache_type,
            rule_tokens=rule_tokens,
            form_bytes=form_bytes,
            media_sandbox=media_sandbox,
            lookup=lookup,
            draft_most=draft_most,
        )

    def close(self) -> None:
        """Makes the model and its sessions unusable. Its memory is freed when the last of them is gone."""
        self._handle = None

    @property
    def closed(self) -> bool:
        """Whether close() was called, or the `with` block has ended."""
        return self._handle is None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        refuse_pickle("model")

    def __repr__(self) -> str:
        return f"<weir.Model {self.path!r}{', closed' if self.closed else ''}>"
