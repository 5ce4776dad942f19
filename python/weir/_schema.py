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
        return json.dumps(_Schemas().whole(schema)), lambda text: _value(schema, json.loads(text))
    raise TypeError(f"schema must be JSON, a dict, a dataclass or a pydantic model, not {schema!r}")


def _is_dataclass(of: Any) -> bool:
    # list[int] says of itself that it is a type, in Python 3.10.
    return typing.get_origin(of) is None and isinstance(of, type) and dataclasses.is_dataclass(of)


def _is_enum(of: Any) -> bool:
    return typing.get_origin(of) is None and isinstance(of, type) and issubclass(of, enum.Enum)


def _fields(of: Any) -> dict[str, Any]:
    """The types of what a dataclass is made from, by name."""
    try:
        hints = typing.get_type_hints(of, localns={of.__name__: of})
    except NameError as error:
        raise TypeError(f"a field of {of.__name__} has a type that is not found from its module: {error}") from None
    return {field.name: hints[field.name] for field in dataclasses.fields(of) if field.init}


def _named(of: Any) -> list[Any]:
    """The JSON values of an enumeration's members, or of a Literal's."""
    members = list(of) if _is_enum(of) else typing.get_args(of)
    values = [member.value if isinstance(member, enum.Enum) else member for member in members]
    for value in values:
        if type(value) not in _PLAIN:
            raise TypeError(f"{value!r} of {of!r} has no form in JSON")
    return values


class _Schemas:
    """Makes a schema. A dataclass that has itself in it is named, and referred to by its name."""

    def __init__(self) -> None:
        self._begun: list[Any] = []
        self._named: dict[Any, str] = {}
        self._defs: dict[str, Any] = {}

    def whole(self, of: Any) -> dict[str, Any]:
        out = self._of(of)
        return {**out, "$defs": self._defs} if self._defs else out

    def _of(self, of: Any) -> dict[str, Any]:
        if of is Any:
            return {}
        if typing.get_origin(of) is None and isinstance(of, type) and of in _PLAIN:
            return {"type": _PLAIN[of]}
        if of is None:
            return {"type": "null"}
        if _is_dataclass(of):
            return self._of_dataclass(of)
        if _is_enum(of) or typing.get_origin(of) is Literal:
            return {"enum": _named(of)}
        origin, args = typing.get_origin(of) or of, typing.get_args(of)
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._of(one) for one in args]}
        if origin is list and len(args) <= 1:
            return {"type": "array", **({"items": self._of(args[0])} if args else {})}
        if origin is tuple and len(args) == 2 and args[1] is Ellipsis:
            return {"type": "array", "items": self._of(args[0])}
        if origin is tuple and args:
            of_each = [self._of(one) for one in args]
            return {"type": "array", "prefixItems": of_each, "minItems": len(args), "maxItems": len(args)}
        if origin is dict and args and args[0] is str:
            return {"type": "object", "additionalProperties": self._of(args[1])}
        raise TypeError(f"a schema cannot be made of {of!r}; write it as JSON, or use a pydantic model")

    def _of_dataclass(self, of: Any) -> dict[str, Any]:
        if of in self._begun:
            self._named.setdefault(of, f"{of.__name__}{len(self._named)}")
        if of in self._named:
            return {"$ref": f"#/$defs/{self._named[of]}"}
        self._begun.append(of)
        fields = {name: self._of(hint) for name, hint in _fields(of).items()}
        self._begun.pop()
        out = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
        if of not in self._named:
            return out
        self._defs[self._named[of]] = out
        return {"$ref": f"#/$defs/{self._named[of]}"}


def _value(of: Any, found: Any) -> Any:
    """What JSON says, as a value of a type. ValueError where it is none."""
    origin, args = typing.get_origin(of) or of, typing.get_args(of)
    if of is Any:
        return found
    if origin in (Union, types.UnionType):
        # The type that JSON means first, so that 3 is no float where it may be an int.
        for one in sorted(args, key=lambda one: one is not type(found)):
            try:
                return _value(one, found)
            except ValueError:
                pass
    elif _is_dataclass(of):
        hints = _fields(of)
        if isinstance(found, dict) and set(found) == set(hints):
            return of(**{name: _value(hints[name], value) for name, value in found.items()})
    elif _is_enum(of) or origin is Literal:
        members = list(of) if _is_enum(of) else args
        for member, value in zip(members, _named(of)):
            if value == found and type(value) is type(found):
                return member
    elif origin is list and isinstance(found, list):
        return [_value(args[0], one) for one in found] if args else found
    elif origin is tuple and isinstance(found, list):
        each = [args[0]] * len(found) if args[1:] == (Ellipsis,) else args
        if len(each) == len(found):
            return tuple(_value(kind, one) for kind, one in zip(each, found))
    elif origin is dict and isinstance(found, dict):
        return {name: _value(args[1], one) for name, one in found.items()}
    elif of is float and type(found) is int:
        return float(found)  # JSON has one kind of numbers
    elif type(found) is of or (of is None and found is None):
        return found
    raise ValueError(f"{found!r} is no {of!r}")
