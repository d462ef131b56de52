"""Changes in the captures of each cell, by phase, part, class and kernel; and different facts of the measurements."""

import pandas as pd

from kernel_tables.attribution.path_text import names_in
from kernel_tables.comparison import LEVELS, Side
from kernel_tables.comparison import changes as changes_of_sides
from profile_grid.comparing.results import Results
from profile_grid.study.dimensions import DIMENSIONS, Dimension
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.names import NO_RANGE

FACTS = {
    "device_name": "device", "driver": "driver", "cuda": "CUDA",
    "torch": "PyTorch", "python": "Python", "cpu_name": "processor", "cores": "cores", "threads": "threads",
    "backend": "profiler", "nsys": "nsys", "measured_git_commit": "source (git commit)",
    "git_clean": "working tree clean", "runs": "runs",
}  # fmt: skip
DIGESTS = {"gpu_uuid_sha256": "GPU", "config_sha256": "configuration"}
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
    facts += [(label, "one", "another") for label, old, new in digests if old != new]
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
