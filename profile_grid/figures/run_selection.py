"""The runs that a figure shows (of one machine, one mode per configuration), those without results, and their labels
and order."""

import pandas as pd

from cs336_model.program.without_times import FAILED, STOPPED, UNSUPPORTED
from profile_grid.results.results import COMPLETE, INCOMPLETE, OUT_OF_MEMORY
from profile_grid.study.dimensions import (
    BY_KEY,
    CONTEXT_LENGTH,
    FULLEST_FIRST,
    KEYS,
    KEYS_WITHOUT_DEFAULT,
    LEADING,
    MODE,
    MODEL,
    MODES,
    PARALLEL,
    PRECISION,
    Dimension,
    keys_without,
)
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED
from profile_grid.tables import measured, pivoting

STATUS_WORDS = {
    OUT_OF_MEMORY: "out of memory",
    UNSUPPORTED: "not supported",
    FAILED: "failed",
    STOPPED: "stopped at the time limit",
    INCOMPLETE: "capture incomplete",
    "missing": "not measured",
}
NAMED_BY_VALUE = (MODEL, CONTEXT_LENGTH, MODE, PRECISION, PARALLEL)  # in labels: "bf16" instead of "in bf16"
CONFIGURATION_KEYS = keys_without(MODE.key)


def of_one_machine(tables: dict[str, pd.DataFrame]) -> tuple[dict[str, pd.DataFrame], str, list[str]]:
    """(tables, title, notes) of the machine with the most runs, since times of two machines do not belong in one
    figure; a note for every other machine says how many of its runs are left out."""
    machines = measured.by_machine(tables["runs"])
    if not machines:
        return tables, "no runs", []
    drawn = max(machines, key=lambda machine_runs: len(machine_runs.run_names))
    drawn_tables = {
        name: table[table["run"].isin(drawn.run_names)].reset_index(drop=True) if "run" in table.columns else table
        for name, table in tables.items()
    }
    others = [machine_runs for machine_runs in machines if machine_runs is not drawn]
    notes = [f"Not drawn: {len(other.run_names)} run(s) of {other.machine.title}." for other in others]
    return drawn_tables, drawn.machine.title, notes


def labels(rows: pd.DataFrame) -> list[str]:
    """A short name of each row: "small · 512 · training step · bf16"; a default is named only if other rows differ from
    it."""
    keys = pivoting.shown_dimensions(rows, KEYS_WITHOUT_DEFAULT, hidden=[key for key in KEYS if key not in rows])
    return [" · ".join(_label_part(BY_KEY[key], row[key]) for key in keys) for row in rows.to_dict("records")]


def _label_part(dimension: Dimension, value: object) -> str:
    if dimension in NAMED_BY_VALUE:
        return dimension.name_of(value)
    if value == dimension.default and value in dimension.value_names:
        return dimension.title(value)
    return dimension.words(value).removeprefix("with ").removeprefix("on ")


def device_words(runs: pd.DataFrame) -> measured.Words:
    """What the device of these runs, its kernels and their time are called."""
    return measured.ON_CPU if set(runs["device"].dropna()) == {"cpu"} else measured.ON_GPU


def with_dimensions(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows with the dimensions of their runs as first columns, in the declared order. If no run has a value of a
    dimension, the rows keep their own column of that name: one process may measure several values."""
    columns = ["run", *(key for key in KEYS if key not in rows or len(runs) == 0 or runs[key].notna().any())]
    other_columns = rows.drop(columns=columns[1:], errors="ignore")
    return runs[columns].merge(other_columns, on="run", how="inner", validate="one_to_many")


def models_in_order(runs: pd.DataFrame) -> list[str]:
    """The models from the smallest to the largest; those of unknown size come first, in the order of the table."""
    size = pd.to_numeric(runs["parameters"], errors="coerce").astype("float64")
    largest = size.groupby(runs["model"], sort=False).max().fillna(0)
    return list(largest.sort_values(kind="stable").index)


def sorted_by_size(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows by size of the model, context length, and mode; a stable sort."""
    models, modes = models_in_order(runs), list(MODES)
    positions = pd.DataFrame({
        "model": [models.index(model) for model in rows["model"]],
        "context_length": [int(length) for length in rows["context_length"]],
        "mode": [modes.index(mode) if mode else -1 for mode in rows["mode"]],  # a single operator has no mode
    })  # fmt: skip
    return rows.iloc[positions.sort_values(list(positions), kind="stable").index].reset_index(drop=True)


def runs_without_results(runs: pd.DataFrame, *stages: Stage) -> pd.DataFrame:
    """The runs of which a requested stage of these is not complete: their dimensions, the `status` of the first such
    stage, and the `reason`."""
    status = pd.Series(COMPLETE, index=runs.index, dtype="object")
    for stage in stages:
        status = status.where(~status.isin((COMPLETE, NOT_ASKED)), runs[stage.status_column].astype("object"))
    table = runs[list(LEADING)].assign(status=status, reason=runs["reason"].astype("object"))
    return table[~table["status"].isin((COMPLETE, NOT_ASKED))].reset_index(drop=True)


def fullest_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The run of each configuration with the most phases: a training step if the grid has one."""
    return _first_by_mode(runs, FULLEST_FIRST)


def leanest_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """The run of each configuration with the fewest phases: inference if the grid has it."""
    return _first_by_mode(runs, FULLEST_FIRST[::-1])


def _first_by_mode(runs: pd.DataFrame, modes: tuple[str, ...]) -> pd.DataFrame:
    positions = {mode: position for position, mode in enumerate(modes)}
    return runs.sort_values("mode", key=lambda mode: mode.map(positions), kind="stable").drop_duplicates(
        CONFIGURATION_KEYS
    )
