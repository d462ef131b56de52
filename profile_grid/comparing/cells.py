"""What is compared: every cell of a grid before and after (the ratio of its times with an interval, a verdict, the
energy of a step), the changes in its captures, and different facts of the measurements."""

import numpy as np
import pandas as pd

from kernel_tables.attribution.path_text import names_in
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
from profile_grid.tables.names import NO_RANGE
from profile_grid.tables.ratios import ratio_and_std

TOO_FEW, NOT_COMPARABLE = "too few processes to tell", "not comparable"
VERDICTS = (FASTER, SLOWER, UNCLEAR, TOO_FEW, NOT_COMPARABLE)
SAME_NEEDED = ("device", "device_name", "d_model", "d_ff", "num_layers", "num_heads", "vocab_size")
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
OF_A_TEST = ["error", "freedom"]
FIGURES = [column.name for column in CELLS.columns if column.dtype == FLOAT]


def cells(before: Results, after: Results) -> pd.DataFrame:
    """One row per run of either side, in the order of the grid: times of a step, ratio after ÷ before with the bounds
    of its interval, p-values (`p_adjusted` for all tested cells), verdict and its reason."""
    names = list(dict.fromkeys([*before.runs, *after.runs]))
    table = pd.DataFrame([_cell(name, before, after) for name in names], columns=[*CELLS.all_names, *OF_A_TEST])
    table = table.astype(dict.fromkeys([*FIGURES, *OF_A_TEST], "float64"))
    verdicts = ratio_verdicts(1 / table["ratio"], *(table.pop(name) for name in OF_A_TEST))
    tested = verdicts["p"].notna()
    figures = {"ratio_low": 1 / verdicts["high"], "ratio_high": 1 / verdicts["low"], **verdicts[["p", "p_adjusted"]]}
    return table.assign(**figures, verdict=table["verdict"].where(~tested, verdicts["verdict"]))


def _cell(name: str, before: Results, after: Results) -> dict:
    row = {key: (after.runs.get(name) or before.runs[name])[key] for key in LEADING}
    row |= {f"peak_{side}_bytes": results.runs.get(name, {}).get("peak_allocated_bytes")
            for side, results in (("before", before), ("after", after))}  # fmt: skip
    if reason := not_comparable(name, before, after):
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
    _, (error,), (freedom,) = ratios_of_processes(old_ms[None], new_ms[None])
    return row | {"reason": "", "error": error, "freedom": freedom}


def not_comparable(name: str, before: Results, after: Results, status: str = TIMING.status_column) -> str | None:
    """Why the numbers of a run, of the stage with this status column, cannot be compared; None if they can."""
    for results, side in ((before, "after"), (after, "before")):
        if name not in results.runs:
            return f"only {side}"
    old, new = before.runs[name], after.runs[name]
    for side, row in (("before", old), ("after", new)):
        if row[status] != COMPLETE:
            return f"{row[status]} {side}"
    differing = [key for key in SAME_NEEDED if str(old.get(key)) != str(new.get(key))]
    return f"{differing[0]} is {old.get(differing[0])}, then {new.get(differing[0])}" if differing else None


FIGURE, SPREAD = "joules_per_step", "joules_per_step_std"
ENERGY_COLUMNS = ["run", "counter", FIGURE, SPREAD]
RENAMED = {FIGURE: f"before_{FIGURE}", SPREAD: f"before_{SPREAD}"}
ENERGIES = TableSpec(
    "energies",
    "One row per run whose energy both sides counted",
    columns(f"""
    counter | text | | as in energy
    before_{FIGURE} | float | J | energy of a step before
    before_{SPREAD} | float | J | its standard deviation between windows
    {FIGURE} | float | J | energy of a step after
    {SPREAD} | float | J | its standard deviation between windows
    ratio | float | | after ÷ before
    ratio_std | float | | its standard deviation, from those of both
"""),
)


def energies(before: Results, after: Results) -> pd.DataFrame:
    """One row per run: joules of a step on both sides and their ratio after ÷ before, each with its standard deviation.
    The windows of a side belong to one process, so there is no verdict."""
    if not all("energy" in results.tables for results in (before, after)):
        return pd.DataFrame(columns=ENERGIES.all_names)
    old, new = (_by_run(results) for results in (before, after))
    both = new.merge(old.rename(columns=RENAMED), on=["run", "counter"])
    same = [not_comparable(name, before, after, ENERGY.status_column) is None for name in both["run"]]
    both = both[np.array(same, bool)].reset_index(drop=True)
    both = both.assign(**{key: [after.runs[name][key] for name in both["run"]] for key in LEADING})
    ratio, std = ratio_and_std(both[FIGURE], both[SPREAD], both[RENAMED[FIGURE]], both[RENAMED[SPREAD]])
    return both.assign(ratio=ratio, ratio_std=std)[ENERGIES.all_names]


def _by_run(results: Results) -> pd.DataFrame:
    """The energy of every run of a side, by the run's name in the grid."""
    run_tables = pd.DataFrame([(name, results.table_name(name)) for name in results.runs], columns=["name", "run"])
    return (
        run_tables.merge(results.tables["energy"][ENERGY_COLUMNS], on="run")
        .drop(columns="run")
        .rename(columns={"name": "run"})
    )


FACTS = {
    "device_name": "device", "driver": "driver", "cuda": "CUDA",
    "torch": "PyTorch", "python": "Python", "cpu_name": "processor", "cores": "cores", "threads": "threads",
    "backend": "profiler", "nsys": "nsys", "measured_git_commit": "source (git commit)",
    "git_clean": "working tree clean", "runs": "runs",
}  # fmt: skip
DIGESTS = {"gpu_uuid_sha256": "GPU", "config_sha256": "configuration"}
DIGITS = 8  # of a digest that tell two apart
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
    """One row per fact of the two measurements, or dimension of the runs, that differs: fact, before, after."""
    dimensions = [(dimension.heading, *_values(dimension, before, after)) for dimension in DIMENSIONS]
    rows = [(label, before.provenance.get(key), after.provenance.get(key)) for key, label in FACTS.items()]
    facts = [(heading, old, new) for heading, old, new in dimensions if old != new]
    facts += [(label, _text(old), _text(new)) for label, old, new in rows if old != new]
    digests = [(label, before.provenance.get(key), after.provenance.get(key)) for key, label in DIGESTS.items()]
    facts += [
        (f"{label}, by the first digits of its SHA-256", *(_text(side)[:DIGITS] for side in (old, new)))
        for label, old, new in digests
        if old != new
    ]
    return pd.DataFrame(facts, columns=CHANGED_FACTS.names)


def _values(dimension: Dimension, before: Results, after: Results) -> tuple[str, str]:
    """The values of a dimension on each side, in words, for runs whose partner has another value."""
    both = [(before.runs[name], row) for name, row in after.runs.items() if name in before.runs]
    pairs = [(old[dimension.key], new[dimension.key]) for old, new in both]
    differ = [dict.fromkeys(values) for values in zip(*(pair for pair in pairs if pair[0] != pair[1]), strict=True)]
    return tuple(", ".join(map(dimension.name_of, side)) for side in differ) or ("", "")


def changes(before: Results, after: Results) -> pd.DataFrame:
    """One row per phase, part, class and kernel of a run that both sides captured and that differs, of a step."""
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
    parts = kernels["range"].astype(object).map(lambda path: (names_in(path) or [NO_RANGE])[-1])
    launched = kernels.assign(part=parts).astype(dict.fromkeys(LEVELS, "str"))
    return Side({}, int(kernels["step"].max()) + 1, launched)


def _text(value: object) -> str:
    if value is None:
        return "not recorded"
    return "; ".join(map(str, value)) if isinstance(value, list) else str(value)
