"""Dataclasses made from JSON, every value checked against the type that its field declares."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

Built = TypeVar("Built")
NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class Mismatch(ValueError):
    """A value is not what its field declares, or is not there; the message names the field."""


def built(kind: type[Built], values: object, where: str = "") -> Built:
    """An object of a dataclass from what json.loads gave; keys that it does not declare are left out.

    Fields are declared as text, number, bool, None, list[...], dict[str, ...], another dataclass, or any of them or
    None. Raises Mismatch.
    """
    if not isinstance(values, Mapping):
        raise Mismatch(f"{where or 'it'} is {_shown(values)}, not an object")
    declared = _declared(kind)
    if missing := [name for name in declared if name not in values]:
        raise Mismatch(f"{_below(where, missing[0])} is missing")
    return kind(**{name: _checked(one, values[name], _below(where, name)) for name, one in declared.items()})


@cache
def _declared(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _checked(kind: Any, value: object, where: str) -> Any:
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        others = [one for one in arguments if one is not types.NoneType]
        return None if value is None else _checked(others[0], value, where)
    if is_dataclass(kind):
        return built(kind, value, where)
    expected = typing.get_origin(kind) or kind
    if expected is Any:
        return value
    if not _is(expected, value):
        raise Mismatch(f"{where} is {_shown(value)}, not {NAMES[expected]}")
    if expected is list and arguments:
        return [_checked(arguments[0], one, f"{where}[{index}]") for index, one in enumerate(value)]
    if expected is dict and arguments:
        return {name: _checked(arguments[1], one, _below(where, name)) for name, one in value.items()}
    return value


def _is(expected: type, value: object) -> bool:
    """A whole number is a number too; true and false, which Python takes for 1 and 0, are none."""
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, (int, float) if expected is float else expected)


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " ..."
