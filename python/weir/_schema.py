# SPDX-License-Identifier: Apache-2.0
"""The form of an answer: a JSON schema as text, a dict, a dataclass or a pydantic model, and answers read back."""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable
from typing import Any, Literal, Union

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_text(schema: Any) -> tuple[str, Callable[[str], Any]]:
    """The schema's JSON, and what makes a value of an answer."""
    if isinstance(schema, str):
        return schema, json.loads
    if isinstance(schema, dict):
        return json.dumps(schema), json.loads
    if hasattr(schema, "model_json_schema") and hasattr(schema, "model_validate_json"):  # pydantic
        return json.dumps(schema.model_json_schema()), schema.model_validate_json
    if isinstance(schema, type) and dataclasses.is_dataclass(schema):
        return json.dumps(_of_type(schema)), lambda text: _value(schema, json.loads(text))
    raise TypeError(f"schema must be JSON, a dict, a dataclass or a pydantic model, not {schema!r}")


def _optional(of: Any) -> tuple[Any, ...] | None:
    return typing.get_args(of) if typing.get_origin(of) in (Union, types.UnionType) else None


def _of_type(of: Any) -> dict[str, Any]:
    if of in _PLAIN:
        return {"type": _PLAIN[of]}
    if isinstance(of, type) and dataclasses.is_dataclass(of):
        hints = typing.get_type_hints(of)
        fields = {field.name: _of_type(hints[field.name]) for field in dataclasses.fields(of)}
        return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    if isinstance(of, type) and issubclass(of, enum.Enum):
        return {"enum": [member.value for member in of]}
    if (alternatives := _optional(of)) is not None:
        return {"anyOf": [_of_type(one) for one in alternatives]}
    if typing.get_origin(of) is Literal:
        return {"enum": list(typing.get_args(of))}
    if typing.get_origin(of) is list:
        return {"type": "array", "items": _of_type(typing.get_args(of)[0])}
    raise TypeError(f"a schema cannot be made of {of!r}; write it as JSON, or use a pydantic model")


def _value(of: Any, found: Any) -> Any:
    if isinstance(of, type) and dataclasses.is_dataclass(of):
        hints = typing.get_type_hints(of)
        return of(**{name: _value(hints[name], value) for name, value in found.items()})
    if isinstance(of, type) and issubclass(of, enum.Enum):
        return of(found)
    if typing.get_origin(of) is list:
        return [_value(typing.get_args(of)[0], one) for one in found]
    if (alternatives := _optional(of)) is not None and isinstance(found, dict):
        return next(
            _value(one, found)
            for one in alternatives
            if dataclasses.is_dataclass(one) and {f.name for f in dataclasses.fields(one)} == set(found)
        )
    return found
