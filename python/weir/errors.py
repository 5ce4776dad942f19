# SPDX-License-Identifier: Apache-2.0
"""What the package raises. Every error of the library is a WeirError; its `status` is the C API's weir_status."""

from __future__ import annotations

from ._library import LIB


class WeirError(Exception):
    """An error of the library, in one line that says what was wrong and what to do. status: weir_status of weir.h."""

    status = 8

    def __init__(self, message: str) -> None:
        super().__init__(message)


class InvalidArgumentError(WeirError, ValueError):
    """The request cannot be honoured."""

    status = 1


class NotFoundError(WeirError, LookupError):
    """There is no such file, policy or recall."""

    status = 2


class CorruptError(WeirError):
    """A file whose bytes contradict themselves."""

    status = 3


class UnsupportedError(WeirError):
    """Well-formed, but this build or model cannot do it."""

    status = 4


class OverBudgetError(WeirError):
    """The budget is too small, or a pot that may not forget is full."""

    status = 5


class IoError(WeirError):
    """The operating system reported an error."""

    status = 6


class CancelledError(WeirError):
    """The call was stopped; what it had read stays read."""

    status = 7


class InternalError(WeirError):
    """A bug in the library, or out of memory."""

    status = 8


class ClosedError(InvalidArgumentError):
    """A model or session that was closed, or that was made in another process, cannot be used."""


_BY_STATUS: dict[int, type[WeirError]] = {
    kind.status: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        CorruptError,
        UnsupportedError,
        OverBudgetError,
        IoError,
        CancelledError,
        InternalError,
    )
}


def check(status: int) -> None:
    """Raises what the latest call of this thread reported, unless it succeeded."""
    if status != 0:
        message = (LIB.weir_last_error() or b"").decode("utf-8", "replace")
        raise _BY_STATUS.get(status, InternalError)(message)
