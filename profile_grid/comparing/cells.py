"""The tables of a comparison of two sides, before and after. For every run of either side, a cell: the ratio of its
times, after ÷ before, with an interval and a verdict. For runs of both: energy, and changes between the captures. Then
the facts of the measurements that differ."""

import numpy as np
import pandas as pd

from kernel_tables.comparison import LEVELS, Side
from kernel_tables.comparison import changes as changes_of_sides
from profile_grid.comparing.results import Results
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import DIMENSIONS, LEADING, Dimension
from profile_grid.study.stages import ENERGY, TIMING
from profile_grid.study.table_spec import FLOAT, TableSpec, columns
from profile_grid.tables.evidence import (
    FASTER,
    FEWEST_PROCESSES,
    SLOWER,
    UNCLEAR,
    ratio_verdicts,
    ratios_of_processes,
    typical_ms,
)
from profile_grid.tables.model_parts import innermost_parts
from profile_grid.tables.ratios import ratio_and_std

TOO_FEW, NOT_COMPARABLE = "too few processes to tell", "not comparable"
VERDICTS = (FASTER, SLOWER, UNCLEAR, TOO_FEW, NOT_COMPARABLE)
# Facts that are equal in comparable runs.
EQUAL_FACTS = ("device", "device_name", "d_model", "d_ff", "num_layers", "num_heads", "vocab_size")
CELLS = TableSpec(
    "cells",
    "One row per run of either side",
    columns("""
    verdict | text | | faster, slower, unclear, too few processes to tell, not comparable
    reason | text | | why there is no verdict, or no comparison
    before_ms | float | ms | median step before, the geometric mean over processes
    after_ms | float | ms | median step after, the geometric mean over processes
    ratio | float | | after ÷ before
    ratio_low | float | | lower end of its interval
    ratio_high | float | | upper end of its interval
    p | float | | probability of such a difference between equal programs
    p_adjusted | float | | the same, adjusted for all tested runs
    processes_before | float | | processes that timed the run before
    processes_after | float | | processes that timed the run after
    peak_before_bytes | float | B | peak memory of tensors before
    peak_after_bytes | float | B | peak memory of tensors after
"""),
)
FLOAT_COLUMNS = [column.name for column in CELLS.columns if column.dtype == FLOAT]


def cells(before: Results, after: Results) -> pd.DataFrame:
    """The table CELLS, with the runs of `before` first."""
    names = dict.fromkeys([*before.runs, *after.runs])
    test_columns = ["error", "freedom"]  # of _cells_row, not in the result
    table = pd.DataFrame([_cells_row(name, before, after) for name in names], columns=[*CELLS.all_names, *test_columns])
    table = table.astype(dict.fromkeys([*FLOAT_COLUMNS, *test_columns], "float64"))
    speed_up = 1 / table["ratio"]
    verdicts = ratio_verdicts(speed_up, table.pop("error"), table.pop("freedom"))
    ends = {"ratio_low": 1 / verdicts["high"], "ratio_high": 1 / verdicts["low"]}
    verdict = table["verdict"].where(verdicts["p"].isna(), verdicts["verdict"])  # runs that were not tested have one
    return table.assign(**ends, **verdicts[["p", "p_adjusted"]], verdict=verdict)


def _cells_row(name: str, before: Results, after: Results) -> dict:
    """One row of CELLS. If the run is not tested, it has the verdict and the reason. If it is tested, it has the
    standard error of the logarithm of its ratio (`error`), and the degrees of freedom of that (`freedom`)."""
    row = {key: (after.runs.get(name) or before.runs[name])[key] for key in LEADING}
    row |= {f"peak_{side}_bytes": results.runs.get(name, {}).get("peak_allocated_bytes")
            for side, results in (("before", before), ("after", after))}  # fmt: skip
    if reason := reason_against_comparing(name, before, after, TIMING.status_column):
        return row | {"verdict": NOT_COMPARABLE, "reason": reason}
    old_ms, new_ms = before.times_ms(name), after.times_ms(name)
    row |= {
        "before_ms": typical_ms(old_ms), "after_ms": typical_ms(new_ms),
        "ratio": typical_ms(new_ms) / typical_ms(old_ms),
        "processes_before": len(old_ms), "processes_after": len(new_ms),
    }  # fmt: skip
    if min(len(old_ms), len(new_ms)) < FEWEST_PROCESSES:
        needed = f"{FEWEST_PROCESSES} processes per side are needed: timing: {{processes: {FEWEST_PROCESSES}}}"
        return row | {"verdict": TOO_FEW, "reason": needed}
    _, (error,), (freedom,) = ratios_of_processes(old_ms[None], new_ms[None])  # arrays of a single run
    return row | {"reason": "", "error": error, "freedom": freedom}


def reason_against_comparing(name: str, before: Results, after: Results, status_column: str) -> str | None:
    """Why the numbers of a run from the stage with this status column cannot be compared; None if they can."""
    if name not in before.runs:
        return "only after"
    if name not in after.runs:
        return "only before"
    old, new = before.runs[name], after.runs[name]
    for side, row in (("before", old), ("after", new)):
        if row[status_column] != COMPLETE:
            return f"{row[status_column]} {side}"
    for key in EQUAL_FACTS:
        if str(old.get(key)) != str(new.get(key)):
            return f"{key} is {old.get(key)}, then {new.get(key)}"
    return None


ENERGIES = TableSpec(
    "energies",
    "One row per run whose energy both sides counted",
    columns("""
    counter | text | | as in energy
    before_joules_per_step | float | J | energy of a step before
    before_joules_per_step_std | float | J | its standard deviation between windows
    joules_per_step | float | J | energy of a step after
    joules_per_step_std | float | J | its standard deviation between windows
    ratio | float | | after ÷ before
    ratio_std | float | | its standard deviation, from those of both
"""),
)


def energies(before: Results, after: Results) -> pd.DataFrame:
    """The table ENERGIES: both sides must have used the same counter. The windows of a side belong to one process, so
    there is no verdict."""
    if not all("energy" in results.tables for results in (before, after)):
        return pd.DataFrame(columns=ENERGIES.all_names)
    old, new = _energy_by_run(before).add_prefix("before_"), _energy_by_run(after)
    both = new.join(old, how="inner")
    both = both[both["counter"] == both["before_counter"]].reset_index()
    reasons = [reason_against_comparing(name, before, after, ENERGY.status_column) for name in both["run"]]
    both = both[np.array([reason is None for reason in reasons], bool)].reset_index(drop=True)
    both = both.assign(**{key: [after.runs[name][key] for name in both["run"]] for key in LEADING})
    ratio, std = ratio_and_std(
        both["joules_per_step"], both["joules_per_step_std"],
        both["before_joules_per_step"], both["before_joules_per_step_std"],
    )  # fmt: skip
    return both.assign(ratio=ratio, ratio_std=std)[ENERGIES.all_names]


def _energy_by_run(results: Results) -> pd.DataFrame:
    """The energy of every run of a side that counted it; the index is the run's name on this side."""
    energy = results.tables["energy"].set_index("run")[["counter", "joules_per_step", "joules_per_step_std"]]
    energy = energy.reindex([results.table_name(name) for name in results.runs])
    return energy.set_axis(pd.Index(list(results.runs), name="run")).dropna(subset="counter")


FACTS = {  # keys of provenance.json, and their names in the document
    "device_name": "device", "driver": "driver", "cuda": "CUDA",
    "torch": "PyTorch", "python": "Python", "cpu_name": "processor", "cores": "cores", "threads": "threads",
    "backend": "profiler", "nsys": "nsys", "measured_git_commit": "source (git commit)",
    "git_clean": "working tree clean", "runs": "runs",
}  # fmt: skip
DIGESTS = {
    "gpu_uuid_sha256": "GPU, by the first digits of its SHA-256",
    "config_sha256": "configuration, by the first digits of its SHA-256",
}
DIGITS = 8  # of a digest, which are shown
CHANGED_FACTS = TableSpec(
    "facts",
    "One row per fact of the two measurements, or dimension of their runs, that differs",
    columns("""
    fact | text | | what differs
    before | text | | its value before
    after | text | | its value after
"""),
    leading=(),
)
CHANGES = TableSpec(
    "changes",
    "One row per phase, part, class and kernel of a run that both sides captured and that differs",
    columns("""
    run | text | | name of the run
    level | text | | phase, part, class or kernel
    name | text | | which
    change | text | | its change
    launches_before | float | | launches in a step before
    launches_after | float | | launches in a step after
    ms_before | float | ms | GPU time of a step before
    ms_after | float | ms | GPU time of a step after
    ms_more | float | ms | the difference
    ratio | float | | after ÷ before
"""),
    leading=(),
)


def facts_that_differ(before: Results, after: Results) -> pd.DataFrame:
    """The table CHANGED_FACTS: first the dimensions in which compared runs differ, then other facts."""
    dimensions = [(dimension.heading, *_differing_values(dimension, before, after)) for dimension in DIMENSIONS]
    facts = [(heading, old, new) for heading, old, new in dimensions if old != new]
    for key, label in (FACTS | DIGESTS).items():
        old, new = before.provenance.get(key), after.provenance.get(key)
        if old != new:
            facts.append((label, *(_text(value)[: DIGITS if key in DIGESTS else None] for value in (old, new))))
    return pd.DataFrame(facts, columns=CHANGED_FACTS.names)


def _differing_values(dimension: Dimension, before: Results, after: Results) -> tuple[str, str]:
    """The values of a dimension (before, after), in words, of the runs in which they differ; "", "" if in none."""
    names = [name for name in after.runs if name in before.runs]
    pairs = [(before.runs[name][dimension.key], after.runs[name][dimension.key]) for name in names]
    sides = zip(*(pair for pair in pairs if pair[0] != pair[1]), strict=True)
    old, new = [", ".join(map(dimension.name_of, dict.fromkeys(values))) for values in sides] or ["", ""]
    return old, new


def changes(before: Results, after: Results) -> pd.DataFrame:
    """The table CHANGES, from the captures of every run that both sides captured."""
    tables = []
    for run in before.runs:
        sides = [side_of_run(results, run) for results in (before, after)]
        if all(sides):
            tables.append(changes_of_sides(*sides).assign(run=run))
    return pd.concat(tables, ignore_index=True)[CHANGES.names] if tables else pd.DataFrame(columns=CHANGES.names)


def side_of_run(results: Results, run: str) -> Side | None:
    """The kernels of the capture of a run, by step; None without kernels."""
    kernels = results.kernels(run)
    if kernels.empty:
        return None
    launched = kernels.assign(part=innermost_parts(kernels["range"])).astype(dict.fromkeys(LEVELS, "str"))
    return Side({}, int(kernels["step"].max()) + 1, launched)


def _text(value: object) -> str:
    """A value of provenance.json in words: a list if the runs have several values."""
    if value is None:
        return "not recorded"
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
