"""The attention sweep: a grid whose program is one attention operator alone. Imports nothing heavy.

A row is a value of every dimension but the context length, which a process goes through: what it measures is one row of
the table, so that a cell takes seconds. A grid is of models or of attention, never of both.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

from cs336_model.program.operator.spec import KNOWN_DIMENSIONS, impossible_row
from profile_grid.study.dimensions import BATCH_SIZE, CONTEXT_LENGTH, Dimension, Value
from profile_grid.study.runs import environment_of, setting, settings_of
from profile_grid.study.schema import ConfigError
from profile_grid.study.stages import SWEEP
from profile_grid.study.sweep_dimensions import BATCH_OF_SWEEP, DIMENSIONS, KEYS, PROGRAM


@dataclass(frozen=True)
class Row:
    """One row: a value of every dimension, and the context lengths."""

    values: Mapping[str, Value]
    context_lengths: tuple[int, ...]

    @property
    def name(self) -> str:
        """The folder below results/sweep."""
        parts = (one.part_of_name(self.values[one.key]) for one in DIMENSIONS)
        return "_".join([PROGRAM, *(part for part in parts if part is not None)])


def is_sweep(config: dict) -> bool:
    """Whether the chosen grid is one of attention alone. Raises ConfigError where it is that and one of models."""
    of_attention = ["program" in one for one in config["grids"][config["grid"]]]
    if any(of_attention) and not all(of_attention):
        raise ConfigError(f"grids.{config['grid']}: program {PROGRAM} stands beside models; give it a grid of its own")
    return all(of_attention)


def sweep_rows(config: dict) -> dict[str, Row]:
    """The rows of the chosen grid by name, in the order of the file; a row that two products list has the context
    lengths of both."""
    rows: dict[str, Row] = {}
    for one in config["grids"][config["grid"]]:
        lists = (_listed(config, one, dimension) for dimension in DIMENSIONS)
        for values in (dict(zip(KEYS, found, strict=True)) for found in product(*lists)):
            if reason := impossible_row(values):
                raise ConfigError(f"grids.{config['grid']}: a row of attention cannot be measured: {reason}")
            row = Row(values, tuple(one[CONTEXT_LENGTH.listed]))
            earlier = rows.get(row.name, Row(values, ())).context_lengths
            rows[row.name] = Row(values, tuple(sorted({*earlier, *row.context_lengths})))
    return rows


def row_specification(config: dict, row: Row) -> str:
    """What the process of a row is told: canonical JSON, so that Snakemake sees a change and nothing else."""
    program = {
        "run": row.name,
        "dimensions": {key: row.values[key] for key in KNOWN_DIMENSIONS},
        "context_lengths": list(row.context_lengths),
        "seed": config["seed"],
        "device": config["device"],
        **settings_of(config, SWEEP, of_program=True),
    }
    told = {"program": program, "environment": environment_of(config)}
    return json.dumps(told, sort_keys=True, separators=(",", ":"))


def sweep_part(config: dict) -> dict:
    """The part of the configuration that decides what the chosen grid of attention measures."""
    part = {key: config[key] for key in ("grid", "seed", "device")}
    part |= {one.setting: setting(config, one) for one in DIMENSIONS if one.setting}
    part |= {SWEEP.name: settings_of(config, SWEEP), "environment": environment_of(config)}
    return part | {"grids": {config["grid"]: config["grids"][config["grid"]]}}


def sweep_plan(config: dict) -> dict:
    """The grid's name and its rows in order: dimensions, context lengths, and what the process of each is told."""
    rows = [
        {
            "run": name,
            **row.values,
            "context_lengths": list(row.context_lengths),
            "specification": json.loads(row_specification(config, row)),
        }
        for name, row in sweep_rows(config).items()
    ]
    return {"grid": config["grid"], "rows": rows}


def _listed(config: dict, one: Mapping, dimension: Dimension) -> list[Value]:
    """The values of a dimension in a product; batches are of 8 where it lists none, as the course has them."""
    if dimension.listed in one:
        return [dimension.spelled(value) for value in one[dimension.listed]]
    if dimension is BATCH_SIZE:
        return [BATCH_OF_SWEEP]
    return [setting(config, dimension)]
