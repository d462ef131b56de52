"""The schema of config.yaml, from config.schema.yaml, dimensions and stages, and checks that it cannot express.

`check_schema` and `check_keys` raise the first error; `value_errors` and `source_errors` yield messages for their
callers to raise.
"""

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.study.dimensions import ATTENTION, DIMENSIONS
from profile_grid.study.removed import removed_errors
from profile_grid.study.stage import Stage
from profile_grid.study.stages import ON_REQUEST, STAGE_BY_NAME
from profile_grid.study.workloads import ATTENTION_ALONE, KNOWN_PROGRAMS, MODEL_STEPS, Workload

SCHEMA = Path(__file__).with_name("config.schema.yaml")


class ConfigError(OutsideError):
    """config.yaml asks for something that cannot be run; the message is one line."""


def value_errors(config: Mapping) -> Iterator[str]:
    """A message for each value that cannot be used: its key, the value, what was expected."""
    yield from _infinity_errors(config, "")
    yield from _rule_errors(config)


def source_errors(root: Path, paths: list[str]) -> Iterator[str]:
    """A message for each of program.sources that is not a file of the project at `root`."""
    for index, path in enumerate(paths):
        if not (root / path).is_file():
            problem = "is a folder" if (root / path).is_dir() else "does not exist"
            yield f"program.sources.{index}: {path!r} {problem}; name a file of the project"


def _infinity_errors(value: object, path: str) -> Iterator[str]:
    """A message for each .nan and .inf in a value: the comparisons of the schema do not catch them."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: {value} is not a finite number"
    children = value.items() if isinstance(value, Mapping) else ()
    if isinstance(value, list):
        children = enumerate(value)
    for key, child in children:
        yield from _infinity_errors(child, f"{path}.{key}" if path else str(key))


def _rule_errors(config: Mapping) -> Iterator[str]:
    """The errors of custom kernel classes and diagnosis rules. What checks them is only imported if there are any."""
    classes, rules = config.get("kernel_classes", []), config.get("diagnosis_rules", [])
    if not classes and not rules:
        return
    from kernel_tables.diagnosis.custom_rules import rules_of_entries
    from kernel_tables.errors import TraceError
    from kernel_tables.kernel_classes.categories import users_rules

    # both return rules; here only their errors are wanted
    for parse_rules in (lambda: users_rules(classes), lambda: rules_of_entries(rules, "diagnosis_rules")):
        try:
            parse_rules()
        except TraceError as error:
            yield str(error)


def config_schema() -> dict:
    """The complete JSON schema of config.yaml."""
    import yaml

    schema = yaml.safe_load(SCHEMA.read_text())
    schema["properties"] |= {  # such as batch_size, for products without a list `batch_sizes`
        dimension.setting: {
            "description": f"Default of a product without `{dimension.list_key}`: {dimension.meaning}.",
            **dimension.schema,
        }
        for dimension in DIMENSIONS
        if dimension.setting
    }
    schema["properties"] |= {stage.name: _stage_schema(stage) for stage in STAGE_BY_NAME.values()}
    schema["$defs"]["known_program"] = {"enum": list(KNOWN_PROGRAMS)}
    schema["$defs"]["product"] = _product_schema()
    return schema


def check_schema(config: dict) -> None:
    """Raises ConfigError with one line that names the key, the value and what was expected."""
    import jsonschema

    for message in removed_errors(config):
        raise ConfigError(message)
    checks = {"pattern": _pattern_errors}
    validator = jsonschema.validators.extend(jsonschema.Draft202012Validator, checks)(config_schema())
    error = jsonschema.exceptions.best_match(validator.iter_errors(config))
    if error is not None:
        key = ".".join(str(part) for part in error.absolute_path) or "top level"
        raise ConfigError(f"{key}: {_error_text(error)}".replace("\n", " "))


def _pattern_errors(validator, pattern: str, text: object, schema: dict) -> Iterator:
    """As jsonschema checks a pattern, except that `$` matches only at the very end. In Python, it would also match
    before a final newline."""
    import jsonschema

    if validator.is_type(text, "string") and not re.search(re.sub(r"\$$", r"\\Z", pattern), text):
        yield jsonschema.ValidationError(f"{text!r} does not match {pattern!r}")


def check_keys(path: Path) -> None:
    """Raises ConfigError if a mapping in a YAML file has a key twice: YAML readers keep the last without a warning."""
    import yaml

    try:
        root = yaml.compose(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return  # Snakemake also reads the file, and reports that
    for node in _mappings(root):
        line_by_key = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.value in line_by_key:
                lines = f"lines {line_by_key[key.value]} and {line}"
                raise ConfigError(f"{path}: {lines} both set {key.value!r}; keep one of them")
            line_by_key[key.value] = line


def _mappings(node) -> Iterator:
    """The mappings in a node of a YAML file, and the node itself if it is one."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        yield node
        children = [child for pair in node.value for child in pair]
    else:
        children = node.value if isinstance(node, yaml.SequenceNode) else []
    for child in children:
        yield from _mappings(child)


def _product_schema() -> dict:
    """The schema of a product of a grid: of attention alone if it has the key `program`, else of models."""
    stages = {
        "description": "Stages of these runs, in addition to those of every run.",
        "type": "array", "uniqueItems": True, "items": {"enum": list(ON_REQUEST)},
    }  # fmt: skip
    program = {"description": "Measures attention alone.", "enum": [ATTENTION_ALONE.name]}
    of_attention = _lists_schema(ATTENTION_ALONE, {"program": program})
    of_attention["properties"][ATTENTION.list_key]["items"] = {
        "if": {"type": "string", "pattern": ":"}, "then": {"$ref": "#/$defs/importable"}, "else": ATTENTION.schema,
    }  # fmt: skip
    of_models = _lists_schema(MODEL_STEPS, {"stages": stages})
    return {"if": {"required": ["program"]}, "then": of_attention, "else": of_models}


def _lists_schema(workload: Workload, other_keys: dict) -> dict:
    """The schema of a product that lists the workload's dimensions; those without a default must be listed."""
    dimensions = (*workload.dimensions, *workload.process_dimensions)  # runs differ in the former, rows in the latter
    lists = {
        dimension.list_key: {
            "description": f"{dimension.meaning[0].upper()}{dimension.meaning[1:]}.",
            "type": "array", "minItems": 1, "uniqueItems": True, "items": dimension.schema,
        }
        for dimension in dimensions
    }  # fmt: skip
    required = [dimension.list_key for dimension in dimensions if dimension.default is None]
    return {"type": "object", "additionalProperties": False, "required": required, "properties": other_keys | lists}


def _stage_schema(stage: Stage) -> dict:
    settings = {name: dict(setting.schema) for name, setting in stage.settings.items()}
    return {
        "description": f"{stage.meaning[0].upper()}{stage.meaning[1:]}.",
        "type": "object", "additionalProperties": False, "properties": settings,
    }  # fmt: skip


def _error_text(error) -> str:
    """What a schema error is about: the value, and what the schema expects."""
    if error.validator == "additionalProperties":
        known = ", ".join(error.schema["properties"])
        unknown = sorted(set(error.instance) - set(error.schema["properties"]))
        return f"unknown key {', '.join(map(repr, unknown))}; known keys: {known}"
    if error.validator == "pattern":
        return f"{error.instance!r} is not allowed here; it must match {error.validator_value}"
    return error.message if len(error.message) < 300 else error.message[:300] + " ..."
