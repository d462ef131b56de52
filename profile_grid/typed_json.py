"""Dataclasses made from JSON, every value checked against the type that its field declares."""

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

Built = TypeVar("Built")
Check = Callable[[Any, str], Any]  # of a value and its path: returns the value, or raises Mismatch
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


def parse_as(kind: type[Built], values: object, where: str = "") -> Built:
    """An object of a dataclass from what json.loads gave; keys that it does not declare are left out.

    Fields are declared as text, number, bool, None, list[...], dict[str, ...], another dataclass, or any of them or
    None. Raises Mismatch.
    """
    if not isinstance(values, Mapping):
        raise Mismatch(f"{where or 'it'} is {_shown(values)}, not an object")
    declared = _declared(kind)
    if missing := [name for name in declared if name not in values]:
        raise Mismatch(f"{_below(where, missing[0])} is missing")
    return kind(**{name: check(values[name], _below(where, name)) for name, check in declared.items()})


@cache
def _declared(kind: type) -> dict[str, Check]:
    hints = typing.get_type_hints(kind)
    return {field.name: _check_of(hints[field.name]) for field in fields(kind)}


@cache
def _check_of(kind: Any) -> Check:
    """The function that checks a value against a declared type: a merge checks millions, of a few dozen types."""
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        check = _check_of(next(argument for argument in arguments if argument is not types.NoneType))
        return lambda value, where: None if value is None else check(value, where)
    if is_dataclass(kind):
        return lambda value, where: parse_as(kind, value, where)
    if kind is Any:
        return lambda value, where: value
    expected = typing.get_origin(kind) or kind
    return _with_elements(expected, _check_of(arguments[-1])) if arguments else _plain(expected)


def _plain(expected: type) -> Check:
    def check(value: object, where: str) -> object:
        if not _is(expected, value):
            raise Mismatch(f"{where} is {_shown(value)}, not {NAMES[expected]}")
        return value

    return check


def _with_elements(expected: type, of_element: Check) -> Check:
    """The check of a list or an object, then of each of its values."""
    check_container = _plain(expected)

    def check(value: Any, where: str) -> object:
        check_container(value, where)
        if expected is list:
            return [of_element(element, f"{where}[{index}]") for index, element in enumerate(value)]
        return {name: of_element(element, _below(where, name)) for name, element in value.items()}

    return check


def _is(expected: type, value: object) -> bool:
    """A whole number is a number too; true and false are not, although Python takes them for 1 and 0."""
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, (int, float) if expected is float else expected)


def _below(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " ..."
