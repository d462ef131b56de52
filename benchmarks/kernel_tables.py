"""Measures commands on a capture, as processes, compared with reading its columns and with nsys stats.

    python -m benchmarks.kernel_tables [--folder FOLDER] [--repeats 3]
        [--sizes 1m_kernels 1m_ranges 200k_overlapping 10m_kernels 16m_ranges]

The bare read, "reading the columns", runs the SELECTs that `kernels` needs, two tables at a time, into NumPy arrays,
without checks. Each capture is generated once, with rows as wide as real ones; by default the first three sizes. Every
command runs --repeats times (nsys once), and the fastest counts.
"""

import gzip
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import PYTHON, ROOT, Costs, run
from kernel_tables.reading.nsys import version_numbers

# A program: "text" is read, since `kernels` needs it, but not kept.
BARE_READ = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from kernel_tables.reading.table_columns import GrowingColumn
from kernel_tables.reading.large_queries import use_batches

def read(columns):
    names = columns.partition(" FROM ")[0].split(", ")
    growing = [GrowingColumn() for name in names if name != "text"]

    def use(batch):
        for column, values in zip(growing, batch.columns):
            column.append(values)

    use_batches(Path(sys.argv[1]), Path(sys.argv[1]), f"SELECT {columns}", use, lambda: None)

with ThreadPoolExecutor(2) as pool:
    list(pool.map(read, (
        'start, "end", correlationId, globalPid, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL',
        "start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        'start, "end", globalTid, textId, eventType, text FROM NVTX_EVENTS',
    )))
"""
NSYS_REPORTS = ("cuda_gpu_kern_sum", "nvtx_gpu_proj_sum", "nvtx_kern_sum")
NSYS_REPORTS_BEFORE_2023 = ("gpukernsum", "nvtxgpuproj", "nvtxkernsum")
LIMIT_S = 120  # an old nsys takes many minutes for some reports
DEFAULT_SIZES = ["1m_kernels", "1m_ranges", "200k_overlapping"]
DEFAULT_FOLDER = Path(tempfile.gettempdir()) / "kernel_tables_benchmark"
REAL_CAPTURE = ROOT / "tests" / "captures" / "tiny_2025.3.1.sqlite.gz"
KERNEL, RUNTIME, NVTX = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
# In globalTid: a thread in the lowest 24 bits, its process in the next 24, and an id of the machine above.
PROCESS = 1 << 48 | 444 << 24
MAIN_THREAD, AUTOGRAD_THREAD = PROCESS | 444, PROCESS | 481
PUSH_POP_EVENT, START_END_EVENT = 59, 60  # nsys's types of ranges
NS_PER_LAUNCH = 5000
KERNEL_NAME_COUNT = 60
INNER_NAME_COUNT = 20  # of ranges on each of the two innermost levels; all ranges of another level have the same name
LAUNCH_NAME_ID, OTHER_NAME_ID = 1000, 1001  # of functions of the CUDA API
Expressions = Mapping[str, object]  # by column, its value in SQL, computed from the row's number n


@dataclass(frozen=True)
class CaptureSize:
    """The size of a capture: kernels, each with a launch among the API calls, and ranges by level of nesting, outermost
    first. Each number of `ranges_by_level` divides the next."""

    name: str
    kernels: int
    ranges_by_level: tuple[int, ...]
    other_calls: int = 0  # which launch nothing
    numbered_names: bool = False  # each range has a number in its name, as with emit_nvtx
    overlap: float = 1.0  # length of an innermost range ÷ time between two starts; above 1 they do not nest

    @property
    def ranges(self) -> int:
        return sum(self.ranges_by_level)

    @property
    def calls(self) -> int:
        return self.kernels + self.other_calls


_SIZES = (
    CaptureSize("1m_kernels", 1_000_000, (10, 1_000, 50_000, 150_000)),
    CaptureSize(
        "1m_ranges", 100_000, (100, 1_000, 10_000, 100_000, 100_000, 200_000, 200_000, 400_000), numbered_names=True
    ),
    CaptureSize("200k_overlapping", 1_000_000, (10, 1_000, 200_000), overlap=2.5),
    CaptureSize("16m_ranges", 2_200_000, (100, 10_000, 10**5, 10**6, 5 * 10**6, 10**7), 4_800_000, numbered_names=True),
    CaptureSize("10m_kernels", 10_000_000, (100, 10_000, 500_000, 1_500_000)),
)
SIZES = {size.name: size for size in _SIZES}


def write_capture(path: Path, size: CaptureSize) -> None:
    """Writes a capture of this size. Every third call is made by a thread without ranges, as autograd's is."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(gzip.decompress(REAL_CAPTURE.read_bytes()))
    with closing(sqlite3.connect(partial)) as connection, connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table not in (KERNEL, RUNTIME, NVTX, "StringIds", "META_DATA_EXPORT"):
                connection.execute(f"DROP TABLE {table}")
        _replace_rows(connection, KERNEL, [(size.kernels, _of_kernels(size))])
        _replace_rows(connection, RUNTIME, [(size.calls, _of_calls(size))])
        launches = f"correlationId IN (SELECT correlationId FROM {KERNEL})"
        connection.execute(f"UPDATE {RUNTIME} SET nameId = {LAUNCH_NAME_ID} WHERE {launches}")
        levels = [(count, _of_ranges(size, level)) for level, count in enumerate(size.ranges_by_level)]
        _replace_rows(connection, NVTX, levels)
        names = [(i, f"void kernel_{i}<float, {i}>(float const*, float*, int)") for i in range(KERNEL_NAME_COUNT)]
        connection.execute("DELETE FROM StringIds")
        connection.executemany(
            "INSERT INTO StringIds VALUES (?, ?)",
            [*names, (LAUNCH_NAME_ID, "cudaLaunchKernel_v7000"), (OTHER_NAME_ID, "cudaEventRecord_v3020")],
        )
    partial.replace(path)


def _replace_rows(connection: sqlite3.Connection, table: str, row_groups: list[tuple[int, Expressions]]) -> None:
    """Replaces the rows of a table. A group is a number of rows, and expressions for their values. SQL computes the
    values, which is far faster than inserting rows from Python. Other columns have the value of a real row."""
    columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
    quoted = ", ".join(f'quote("{column}")' for column in columns)
    real_values = dict(zip(columns, connection.execute(f"SELECT {quoted} FROM {table}").fetchone(), strict=True))
    connection.execute(f"DELETE FROM {table}")
    for count, expressions in row_groups:
        numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {count})"
        values = ", ".join(map(str, (real_values | expressions).values()))
        connection.execute(f"INSERT INTO {table} {numbers} SELECT {values} FROM numbers")


def _of_kernels(size: CaptureSize) -> Expressions:
    return {
        "start": f"n * {NS_PER_LAUNCH} + 4000", "end": f"n * {NS_PER_LAUNCH} + 7000 + n % 97",
        "correlationId": f"n * {size.calls} / {size.kernels} + 100", "globalPid": PROCESS, "gridId": "n + 1",
        **dict.fromkeys(("demangledName", "shortName", "mangledName"), f"n % {KERNEL_NAME_COUNT}"),
    }  # fmt: skip


def _of_calls(size: CaptureSize) -> Expressions:
    """The expressions of API calls. All get the name of those that launch nothing; `write_capture` corrects that."""
    start = f"n * {NS_PER_LAUNCH} * {size.kernels} / {size.calls} + 2000"
    return {
        "start": start, "end": f"{start} + {3 * NS_PER_LAUNCH // 10} * {size.kernels} / {size.calls}",
        "correlationId": "n + 100", "nameId": OTHER_NAME_ID,
        "globalTid": f"CASE n % 3 WHEN 0 THEN {AUTOGRAD_THREAD} ELSE {MAIN_THREAD} END",
    }  # fmt: skip


def _of_ranges(size: CaptureSize, level: int) -> Expressions:
    """The expressions of the ranges of a level. They divide the time evenly, or overlap the next range."""
    count, innermost = size.ranges_by_level[level], len(size.ranges_by_level) - 1
    total_ns = size.kernels * NS_PER_LAUNCH
    length = size.overlap if level == innermost else 1  # in times between two starts
    name_number = f"(n % {INNER_NAME_COUNT})" if level >= innermost - 1 else "0"
    name_end = " || ', seq = ' || n || ', op_id = ' || n" if size.numbered_names else ""
    return {
        "start": f"n * {total_ns} / {count} + {level}",
        "end": f"CAST((n + {length}) * {total_ns} / {count} AS INT) - {level}",
        "eventType": START_END_EVENT if length > 1 else PUSH_POP_EVENT, "globalTid": MAIN_THREAD,
        "text": f"'level {level} part ' || {name_number}{name_end}",
    }  # fmt: skip


def main(*, folder: Path = DEFAULT_FOLDER, sizes: list[str] = DEFAULT_SIZES, repeats: int = 3) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for size in (SIZES[name] for name in sizes):
        path = folder / f"{size.name}.sqlite"
        if not path.exists():
            write_capture(path, size)
        overlapping = ", overlapping without nesting" if size.overlap > 1 else ""
        ranges = f"{size.ranges:,} ranges {len(size.ranges_by_level)} deep{overlapping}"
        costs = Costs(
            f"\n{size.kernels:,} kernels, {size.calls:,} API calls, {ranges}: {path.stat().st_size / 1e6:.0f} MB",
            "wall_s",
        )
        for name, command in commands(path).items():
            costs.measure(name, command, limit_s=LIMIT_S, repeats=1 if command[0] == "nsys" else repeats)


def commands(path: Path) -> dict[str, list[str]]:
    """The measured commands by name; reading the columns first, nsys's reports if there is an nsys."""
    by_name = {"reading the columns": [sys.executable, "-c", BARE_READ, path]}
    by_name |= {f"kernel_tables {name}": [*PYTHON, "kernel_tables", name, path] for name in ("kernels", "ranges")}
    step_name = ["--step-name", "level 0 part 0"]
    by_name["kernel_tables diagnose"] = [*PYTHON, "kernel_tables", "diagnose", path, *step_name]
    if version := version_numbers():
        stats = ["nsys", "stats", "--format", "csv", "--output", "-", "--report"]
        for name in NSYS_REPORTS if version >= (2023,) else NSYS_REPORTS_BEFORE_2023:
            by_name[f"nsys {version[0]}.{version[1]} stats {name}"] = [*stats, name, path]
    return by_name


if __name__ == "__main__":
    run(main)
