"""Dataclasses made from JSON, every value checked against the type that its field declares."""

import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

Parsed = TypeVar("Parsed")
Check = Callable[[Any, str], Any]  # (value, its path in the JSON): returns the parsed value, or raises Mismatch
TYPE_NAMES = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


class Mismatch(ValueError):
    """A value is missing or is not what its field declares; the message names the field."""


def parse_as(kind: type[Parsed], values: object, path: str = "") -> Parsed:
    """An object of the dataclass `kind` from what json.loads returned; keys that it does not declare are left out.

    Types of fields: str, int, float, bool, list[...], dict[str, ...], another dataclass, Any, or a union of these and
    None; of a union, the first type that fits counts. `path` is the place of the values in the JSON, for messages.
    Raises Mismatch.
    """
    if not isinstance(values, Mapping):
        raise Mismatch(f"{path or 'it'} is {_shortened(values)}, not an object")
    checks = _field_checks(kind)
    if missing := [name for name in checks if name not in values]:
        raise Mismatch(f"{_field_path(path, missing[0])} is missing")
    return kind(**{name: check(values[name], _field_path(path, name)) for name, check in checks.items()})


@cache
def _field_checks(kind: type) -> dict[str, Check]:
    types_by_field = typing.get_type_hints(kind)
    return {field.name: _check_of(types_by_field[field.name]) for field in fields(kind)}


@cache
def _check_of(kind: Any) -> Check:
    """The function that checks a value against a declared type; cached, as a merge checks millions of values."""
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return _union_check(arguments)
    if is_dataclass(kind):
        return lambda value, path: parse_as(kind, value, path)
    if kind is Any:
        return lambda value, path: value
    expected = typing.get_origin(kind) or kind
    return _container_check(expected, _check_of(arguments[-1])) if arguments else _type_check(expected)


def _union_check(kinds: tuple[Any, ...]) -> Check:
    checks = [_check_of(kind) for kind in kinds if kind is not types.NoneType]

    def check(value: object, path: str) -> object:
        if value is None and types.NoneType in kinds:
            return None
        messages = []
        for check_alternative in checks:
            try:
                return check_alternative(value, path)
            except Mismatch as error:
                messages.append(str(error))
        raise Mismatch("; ".join(messages))

    return check


def _type_check(expected: type) -> Check:
    def check(value: object, path: str) -> object:
        if not _has_type(expected, value):
            raise Mismatch(f"{path} is {_shortened(value)}, not {TYPE_NAMES[expected]}")
        return value

    return check


def _container_check(expected: type, check_element: Check) -> Check:
    """The check of a list or an object, then of each of its values."""
    check_type = _type_check(expected)

    def check(value: Any, path: str) -> object:
        check_type(value, path)
        if expected is list:
            return [check_element(element, f"{path}[{index}]") for index, element in enumerate(value)]
        return {name: check_element(element, _field_path(path, name)) for name, element in value.items()}

    return check


def _has_type(expected: type, value: object) -> bool:
    """Whether a value has a type: a whole number is a number, too; true and false are not, although bool is an int."""
    if isinstance(value, bool):
        return expected is bool
    return isinstance(value, (int, float) if expected is float else expected)


def _field_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + " ..."
