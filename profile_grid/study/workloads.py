"""The measured program as config.yaml declares it, what the runs of a grid measure, and the dimensions in which they
differ. Imports nothing heavy.

A product of a grid may name a workload with its key `program`; a product without this key is of models. All products
of a grid have the same workload. Stages, tables and questions belong to a workload.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from cs336_model.arguments import MARK, PROJECT_ARGUMENTS, run_value_names
from cs336_model.program.operator.spec import row_impossibility
from cs336_model.program.variants.values import impossibility
from profile_grid.study.dimensions import (
    ATTENTION,
    BATCH_SIZE,
    COMPILE,
    CONTEXT_LENGTH,
    DIMENSIONS,
    HEAD_DIM,
    KEYS,
    MODEL,
    PRECISION,
    Dimension,
    Value,
)

ROPE_THETA = 10000.0
VOCABULARY = "vocab_size"  # a key at the top of config.yaml, for all models, or next to the sizes of one model
KNOWN_PROGRAMS: dict[str, dict[str, Any]] = {  # by the name that `program` may be in config.yaml
    "cs336_basics": {  # the course's model; its attention is replaced by one with ranges inside, as in its handout
        "constructor": "cs336_basics.model:BasicsTransformerLM",
        "annotate": "modules",
        "replace": {
            "cs336_basics.model:scaled_dot_product_attention": (
                "cs336_model.model.course_attention:scaled_dot_product_attention"
            )
        },
    },
}
PROGRAM_DEFAULTS = {"config": None, "arguments": None, "annotate": {}, "replace": {}, "sources": []}


def program_of(config: Mapping) -> dict[str, Any]:
    """The program of a configuration, with all keys. Its `arguments` are None if its constructor takes those of this
    project's model."""
    declared = config["program"]
    return PROGRAM_DEFAULTS | (KNOWN_PROGRAMS[declared] if isinstance(declared, str) else dict(declared))


def has_custom_arguments(config: Mapping) -> bool:
    """Whether the program declares the arguments of its constructor, so that a model may have any sizes."""
    return program_of(config)["arguments"] is not None


def functions_named(program: Mapping) -> list[str]:
    """Every "module:name" that a program names: their files decide what is measured."""
    annotated = program["annotate"].values() if isinstance(program["annotate"], Mapping) else ()
    constructors = filter(None, (program["constructor"], program["config"]))
    return [*constructors, *annotated, *program["replace"], *program["replace"].values()]


def model_specification(config: Mapping, model: str) -> dict[str, Any]:
    """The specification of a model for the measured program: how its program constructs it, and its sizes."""
    program, model_keys = program_of(config), config["models"][model]
    specification = {key: value for key, value in program.items() if key != "sources"}
    sizes = {name: value for name, value in model_keys.items() if name != VOCABULARY}
    if program["arguments"] is None:
        sizes["rope_theta"] = float(sizes.get("rope_theta", ROPE_THETA))
        specification["arguments"] = PROJECT_ARGUMENTS
    return specification | {"sizes": sizes, VOCABULARY: model_keys.get(VOCABULARY, config[VOCABULARY])}


def program_errors(config: Mapping) -> Iterator[str]:
    """A message for each argument without a value, and each size named like a dimension, in the models of the grid."""
    listed = [model for product in config["grids"][config["grid"]] for model in product.get("models", [])]
    for model in dict.fromkeys(model for model in listed if model in config["models"]):
        sizes = config["models"][model]
        for size in sorted(set(KEYS) & set(sizes)):
            yield f"models.{model}.{size}: every run has a {size} already; give the size another name"
        for argument, value_name in run_value_names(program_of(config)["arguments"] or {}).items():
            if value_name not in (*KEYS, VOCABULARY, *sizes):
                yield (
                    f"program.arguments.{argument}: {MARK}{value_name} is not a size of models.{model}"
                    f" ({', '.join(sizes)}) and neither context_length, batch_size nor vocab_size"
                )


Values = Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Workload:
    """What a run measures: steps of a model, or passes of an operator."""

    name: str  # `program` in a product of a grid; the value of the dimension `model` where the workload is an operator
    dimensions: tuple[Dimension, ...]  # in which its runs differ
    impossibility: Callable[[Mapping, Values], str | None]  # (config, values of a run): why no machine can measure it
    specific_settings: Callable[[Mapping, Values], dict[str, Any]]  # (config, values of a run): only this workload's
    trial_function: str  # "module:function" with which `doctor` measures a small part of it
    process_dimensions: tuple[Dimension, ...] = ()  # one process measures all their values, as rows of its result
    defaults: Values = field(default_factory=dict)  # by dimension, instead of the defaults of config.yaml
    program_file: str | None = None  # the measured program; None for the model that config.yaml names


MODEL_STEPS = Workload(
    name="model",
    dimensions=DIMENSIONS,
    impossibility=lambda config, values: impossibility(values, program_of(config)["constructor"]),
    specific_settings=lambda config, values: model_specification(config, values[MODEL.key]),
    trial_function="profile_grid.planning.doctor:try_capture",
)
ATTENTION_ALONE = Workload(
    name="attention",
    dimensions=(HEAD_DIM, PRECISION, BATCH_SIZE, COMPILE, ATTENTION),
    impossibility=lambda config, values: row_impossibility(values),
    specific_settings=lambda config, values: {},
    trial_function="profile_grid.stages.operator.trial:try_operator",
    process_dimensions=(CONTEXT_LENGTH,),
    defaults={BATCH_SIZE.key: 8},  # as in the course
    program_file="cs336_model/program/operator/row.py",
)


def workload_of(product: Mapping) -> Workload:
    """The workload of the runs of a product."""
    return ATTENTION_ALONE if product.get("program") == ATTENTION_ALONE.name else MODEL_STEPS
