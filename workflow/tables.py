"""Tables: from a frame to Parquet and CSV as workflow/columns.yaml declares them, and back; their dictionary; and
verdicts on pairs of runs from merged tables.

The name of a table is that of its file. A merged table (results/tables) begins with KEYS; a table of one run does not.
Times are integer nanoseconds until they are summarized.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from kernel_tables.files import written_whole
from kernel_tables.output import code, compact_table, escaped
from kernel_tables.verdict import judge, judge_samples
from workflow import grid

KEYS = ["run", *grid.KEYS]
Columns = dict[str, list[str]]  # by name: type (text, int, float or bool), unit and meaning
_ARROW_TYPES = {"text": pa.string(), "int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_PANDAS_TYPES = {"text": "str", "int": "int64", "float": "float64", "bool": "bool"}
_PANDAS_TYPES_WITH_GAPS = {"text": "str", "int": "Int64", "float": "float64", "bool": "boolean"}


class WrongTable(Exception):
    """A table is not as declared; the message is one line."""


def declared_columns(name: str, keys: bool = True) -> Columns:
    """The declared columns of a table by name, in order: KEYS first if `keys`. Raises WrongTable for another table."""
    if name not in _declarations():
        raise WrongTable(f"table {name}: not declared; add its columns to workflow/columns.yaml")
    columns = (_declarations()["leading"] if keys else {}) | _declarations()[name]
    return {column: declared for column, declared in columns.items() if column != "rows"}


def declared_tables() -> list[str]:
    return [name for name in _declarations() if name not in ("leading", "shared")]


@cache
def _declarations() -> dict[str, dict]:
    text = Path(__file__).with_name("columns.yaml").read_text(encoding="utf-8")
    declared = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # that in C takes a tenth of the time
    for name, table in declared.items():
        declared[name] = {}
        for column, declaration in table.items():
            shared = declaration if column == "has" else ()
            declared[name] |= {one: declared["shared"][one] for one in shared} or {column: declaration}
    return declared


def make_table(name: str, rows: Iterable[Mapping | Sequence] = (), keys: bool = True) -> pd.DataFrame:
    """A declared table with these rows: mappings, or values in the order of the columns. Values may be missing."""
    columns = declared_columns(name, keys)
    return _cast(_to_arrow(pd.DataFrame(list(rows), columns=list(columns)), name, columns).to_pandas(), columns)


def write_table(frame: pd.DataFrame, path: str | Path, keys: bool = True) -> None:
    """Writes the declared columns of a frame to `path` (.parquet), with units and meanings, and to a .csv file beside
    it; other columns are left out. `keys`: whether the table begins with KEYS.

    Raises WrongTable if a column is missing or has values of another type."""
    path = Path(path).with_suffix(".parquet")
    table = _to_arrow(frame, path.stem, declared_columns(path.stem, keys))
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        pq.write_table(table, partial, compression="zstd")
    with written_whole(path.with_suffix(".csv")) as partial:  # in which an integer stays one beside a gap
        table.to_pandas(integer_object_nulls=True).to_csv(partial, index=False, lineterminator="\n")


def write_tables(made: Mapping[str, pd.DataFrame], outputs: Iterable[str | Path], keys: bool = True) -> None:
    """Writes the tables that the Parquet files among the outputs name; what is not made has no rows."""
    for path in (path for path in map(Path, outputs) if path.suffix == ".parquet"):
        write_table(made[path.stem] if path.stem in made else make_table(path.stem, keys=keys), path, keys)


def read_table(path: str | Path) -> pd.DataFrame:
    """The table in a Parquet file, with declared columns cast to their types; columns that are not declared are kept.
    Integers and truth values of a column with gaps are of pandas' types that know gaps. A dimension of runs that is
    newer than the table is at its default."""
    path = Path(path)
    frame = pq.ParquetFile(path).read().to_pandas()
    declared = declared_columns(path.stem) if path.stem in declared_tables() else {}
    newer = [key for key in KEYS[4:] if "run" in frame and key in declared and key not in frame]
    frame = frame.assign(**{key: getattr(grid.Run(), key) for key in newer})
    return _cast(frame, {name: column for name, column in declared.items() if name in frame})


def read_tables(paths: Iterable[str | Path]) -> dict[str, pd.DataFrame]:
    return {Path(path).stem: read_table(path) for path in paths}


def find_pairs(runs: pd.DataFrame, key: str, base: str | int) -> pd.DataFrame:
    """Runs (`after`) with those that differ from them in one dimension alone, in which they have the value `base`
    (`before`), in the order of the table."""
    alike = [name for name in KEYS[1:] if name != key]
    is_base = runs[key] == base
    before = runs.loc[is_base, ["run", *alike]].rename(columns={"run": "before"})
    pairs = runs.loc[~is_base, ["run", *alike]].rename(columns={"run": "after"}).merge(before, on=alike)
    return pairs[["before", "after"]]


def sort_runs(rows: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The rows in the order of the grid, that of their runs in `runs`; otherwise their order stays."""
    order = {run: number for number, run in enumerate(runs["run"])}
    return rows.sort_values("run", key=lambda names: names.map(order), kind="stable")


def dictionary() -> str:
    """What the columns of all tables mean, as Markdown."""

    def describe(columns: Columns) -> str:
        rows = [(code(name, in_table=True), escaped(unit), escaped(text)) for name, (_, unit, text) in columns.items()]
        return compact_table(("column", "unit", "meaning"), rows)

    leading = {name: column for name, column in declared_columns("runs").items() if name in KEYS}
    parts = [
        "# Data dictionary\n\nEvery table is stored as Parquet and as CSV. A unit *of 1* means a fraction: 0.25 is"
        " 25 %. GPU time is the sum of the durations of kernels and memory operations (on a CPU: of outermost ATen"
        " operators). Values that were not measured are empty, never zero. All tables here begin with the same"
        f" columns:\n\n{describe(leading)}"
    ]
    for name in declared_tables():
        rows = escaped(_declarations()[name]["rows"])
        parts.append(f"## {name}\n\n{rows}.\n\n{describe(declared_columns(name, keys=False))}")
    return "\n".join(parts)


def _to_arrow(frame: pd.DataFrame, name: str, columns: Columns) -> pa.Table:
    """The declared columns of the frame with their types, units and meanings."""
    schema = pa.schema([
        pa.field(column, _ARROW_TYPES[kind], metadata={"unit": unit, "meaning": meaning})
        for column, (kind, unit, meaning) in columns.items()
    ])  # fmt: skip
    texts = {column: "str" for column, dtype in frame.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)}
    try:
        table = pa.Table.from_pandas(frame.astype(texts), schema, preserve_index=False)
    except (KeyError, pa.ArrowException) as error:
        raise WrongTable(f"table {name} is not as workflow/columns.yaml declares: {error}") from None
    return table.replace_schema_metadata(None)


def _cast(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """The frame with declared columns of their types. A number in a column of texts becomes the text of an integer."""
    types = {}
    for name, (kind, _, _) in columns.items():
        types[name] = (_PANDAS_TYPES_WITH_GAPS if frame[name].hasnans else _PANDAS_TYPES)[kind]
        if kind == "text" and pd.api.types.is_numeric_dtype(frame[name]):
            frame = frame.assign(**{name: frame[name].astype("Int64")})
    return frame.astype({name: dtype for name, dtype in types.items() if frame[name].dtype != dtype})


def judge_gpu_times(phases: pd.DataFrame, pairs: pd.DataFrame, phase: str = "step") -> pd.DataFrame:
    """The pairs with a verdict on the GPU time of a phase, from the merged table `phases`; see judge for columns."""
    rows = phases[(phases["phase"] == phase) & (phases["gpu_busy_ns"] > 0)].set_index("run")
    return judge_samples(rows["gpu_busy_ns"] / 1e6, pairs, "captured step", least=0.02)


def judge_wall_times(timings: pd.DataFrame, pairs: pd.DataFrame, phase: str = "step") -> pd.DataFrame:
    """The pairs with a verdict on the time of a phase without a profiler, from the merged table `timings`."""
    rows = timings[timings["phase"] == phase].set_index("run")
    columns = {"mean_ms": "mean", "process_spread": "spread", "processes": "n"}
    times = rows[list(columns)].rename(columns=columns).astype("float64")
    return judge(times.fillna({"n": 1.0}), pairs, "process")
