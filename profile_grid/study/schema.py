"""The schema of config.yaml: what stands in config.schema.yaml, and what the dimensions and stages declare."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.study.dimensions import DIMENSIONS
from profile_grid.study.program import KNOWN_PROGRAMS
from profile_grid.study.stage import Stage
from profile_grid.study.stages import BY_NAME, ON_REQUEST
from profile_grid.study.workloads import ATTENTION_ALONE, MODEL_STEPS, Workload

SCHEMA = Path(__file__).with_name("config.schema.yaml")


class ConfigError(OutsideError):
    """config.yaml asks for something that cannot be run; the message is one line."""


def config_schema() -> dict:
    """The whole JSON schema."""
    import yaml

    schema = yaml.safe_load(SCHEMA.read_text())
    schema["properties"] |= {
        one.setting: {"description": f"{one.meaning}, where a grid does not list {one.listed}.", **one.schema}
        for one in DIMENSIONS
        if one.setting
    }
    schema["properties"] |= {stage.name: _section(stage) for stage in BY_NAME.values()}
    schema["$defs"]["known_program"] = {"enum": list(KNOWN_PROGRAMS)}
    schema["$defs"]["product"] = _product_of_any()
    return schema


def check_schema(config: dict) -> None:
    """Raises ConfigError with one line that names the key, the value and what was expected."""
    import jsonschema

    checks = {"pattern": _pattern_errors}
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, checks)(config_schema())
    error = jsonschema.exceptions.best_match(validator.iter_errors(config))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path) or "top level"
        raise ConfigError(f"{where}: {_explained(error)}".replace("\n", " "))


def _pattern_errors(validator, pattern: str, text: object, schema: dict) -> Iterator:
    """As jsonschema checks a pattern, but `$` is the end of the text: Python's also matches before a final newline."""
    import jsonschema

    if validator.is_type(text, "string") and not re.search(re.sub(r"\$$", r"\\Z", pattern), text):
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


def check_keys(path: Path) -> None:
    """Raises ConfigError if a mapping in a YAML file has a key twice: YAML readers silently keep the last."""
    import yaml

    try:
        root = yaml.compose(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return  # Snakemake, which reads the file too, reports that
    for node in _mappings(root):
        seen = {}
        for key, _ in node.value:
            if key.value in seen:
                lines = f"lines {seen[key.value]} and {key.start_mark.line + 1}"
                raise ConfigError(f"{path}: {lines} both set {key.value!r}; keep one of them")
            seen[key.value] = key.start_mark.line + 1


def _mappings(node) -> Iterator:
    import yaml

    if isinstance(node, yaml.MappingNode):
        yield node
        for key_and_value in node.value:
            yield from (inner for each in key_and_value for inner in _mappings(each))
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _mappings(each)


def _product_of_any() -> dict:
    """One product of a grid: of models, or where it names a program of attention alone."""
    stages = {
        "description": "Stages that these runs have besides those of every run.",
        "type": "array", "uniqueItems": True, "items": {"enum": list(ON_REQUEST)},
    }  # fmt: skip
    program = {"description": "Measures attention alone.", "enum": [ATTENTION_ALONE.name]}
    alone = _product(ATTENTION_ALONE, {"program": program})
    return {"if": {"required": ["program"]}, "then": alone, "else": _product(MODEL_STEPS, {"stages": stages})}


def _product(workload: Workload, further: dict) -> dict:
    """Values listed by dimension; those without a default have to be listed."""
    dimensions = (*workload.dimensions, *workload.in_process)
    lists = {
        one.listed: {
            "description": one.meaning, "type": "array", "minItems": 1, "uniqueItems": True, "items": one.schema,
        }
        for one in dimensions
    }  # fmt: skip
    required = [one.listed for one in dimensions if one.default is None]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": further | lists}


def _section(stage: Stage) -> dict:
    settings = {name: dict(setting.schema) for name, setting in stage.settings.items()}
    return {
        "description": f"{stage.meaning[0].upper()}{stage.meaning[1:]}.",
        "type": "object", "additionalProperties": False, "properties": settings,
    }  # fmt: skip


def _explained(error) -> str:
    """One line on a schema error: the value, and what the schema wanted."""
    if error.validator == "additionalProperties":
        known = ", ".join(error.schema["properties"])
        unknown = sorted(set(error.instance) - set(error.schema["properties"]))
        return f"unknown key {', '.join(map(repr, unknown))}; known keys: {known}"
    if error.validator == "pattern":
        return f"{error.instance!r} is not allowed here; it must match {error.validator_value}"
    return error.message if len(error.message) < 300 else error.message[:300] + " ..."
