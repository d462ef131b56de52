"""What a configuration may not hold and a JSON schema cannot say. Imports nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path


def unusable_values(config: Mapping) -> Iterator[str]:
    """One line for each value that cannot be used: its key, the value, what was expected."""
    yield from _not_finite(config, "")
    yield from _no_patterns(config.get("kernel_classes", []))
    yield from _no_rules(config.get("diagnosis_rules", []))


def unusable_sources(root: Path, paths: list[str]) -> Iterator[str]:
    """One line for each of program.sources that is no file of the project at `root`."""
    for index, path in enumerate(paths):
        if not (root / path).is_file():
            what = "a folder" if (root / path).is_dir() else "not there"
            yield f"program.sources.{index}: {path!r} is {what}; name a file of the project"


def _not_finite(value: object, where: str) -> Iterator[str]:
    """YAML's .nan and .inf, which pass every comparison of the schema or compare with nothing."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where}: {value} is not a finite number"
    below = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for key, one in below:
        yield from _not_finite(one, f"{where}.{key}" if where else str(key))


def _no_patterns(rules: list[Mapping]) -> Iterator[str]:
    if not rules:
        return
    from kernel_tables.errors import TraceError
    from kernel_tables.kernel_classes.categories import users_rules

    try:
        users_rules(rules)
    except TraceError as error:
        yield str(error)


def _no_rules(rules: list[Mapping]) -> Iterator[str]:
    if not rules:
        return
    from kernel_tables.diagnosis.own_rules import own_rules  # with numpy: only where there are rules to look at
    from kernel_tables.errors import TraceError

    try:
        own_rules(rules, "diagnosis_rules")
    except TraceError as error:
        yield str(error)
