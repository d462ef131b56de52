"""What the runs of a grid measure, and the dimensions in which they differ. Imports nothing heavy.

A product of a grid names its workload as `program`; without it, it is of models. All products of a grid have the same
workload. Stages, tables and questions belong to a workload.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cs336_model.program.operator.spec import impossible_row
from cs336_model.program.variants.values import impossible
from profile_grid.study.dimensions import (
    ATTENTION,
    BATCH_SIZE,
    COMPILE,
    CONTEXT_LENGTH,
    DIMENSIONS,
    HEAD_DIM,
    MODEL,
    PRECISION,
    Dimension,
    Value,
)
from profile_grid.study.program import model_specification, program_of

Values = Mapping[str, Value]


@dataclass(frozen=True, eq=False)
class Workload:
    """What a run measures: steps of a model, or passes of an operator."""

    name: str  # `program` in a product of a grid; the value of the dimension `model` where the workload is an operator
    dimensions: tuple[Dimension, ...]  # in which its runs differ
    impossible: Callable[[Mapping, Values], str | None]  # by configuration and values: why no machine can measure a run
    arguments: Callable[[Mapping, Values], dict[str, Any]]  # keys of its specification, besides those of all programs
    tried_by: str  # "module:function" with which `doctor` tries a small part of it
    in_process: tuple[Dimension, ...] = ()  # dimensions whose values one process goes through: rows, not runs
    defaults: Values = field(default_factory=dict)  # instead of those of config.yaml
    program: str | None = None  # the file of its program; None for the model that config.yaml names
    tables: tuple[str, ...] = ()  # merged tables besides those of its stages


MODEL_STEPS = Workload(
    name="model",
    dimensions=DIMENSIONS,
    impossible=lambda config, values: impossible(values, program_of(config)["constructor"]),
    arguments=lambda config, values: model_specification(config, values[MODEL.key]),
    tried_by="profile_grid.planning.doctor:try_capture",
    tables=("largest",),
)
ATTENTION_ALONE = Workload(
    name="attention",
    dimensions=(HEAD_DIM, PRECISION, BATCH_SIZE, COMPILE, ATTENTION),
    impossible=lambda config, values: impossible_row(values),
    arguments=lambda config, values: {},
    tried_by="profile_grid.stages.operator.trial:try_operator",
    in_process=(CONTEXT_LENGTH,),
    defaults={BATCH_SIZE.key: 8},  # as in the course
    program="cs336_model/program/operator/row.py",
)
OPERATORS = (ATTENTION_ALONE,)


def workload_of(product: Mapping) -> Workload:
    """The workload of the runs of a product."""
    return next((workload for workload in OPERATORS if workload.name == product.get("program")), MODEL_STEPS)
