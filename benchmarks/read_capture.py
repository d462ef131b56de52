"""Measures how fast a capture is read: `python benchmarks/read_capture.py [--kernels 1000000] [--ranges N]`.

For a large capture `--kernels 10000000`, for one with many ranges `--kernels 2200000 --ranges 16000000 --repeats 1`.
`kernel-tables kernels` reads a made-up capture, and SQLite adds up the columns that this command needs, without making
a Python object: no reader by SQLite is faster. Both are whole processes; the fastest of the repeats counts. Printed
are the ratios of the command to that read, and its peak memory as a multiple of the file.
"""

import argparse
import gzip
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
REAL_CAPTURE = ROOT / "tests" / "captures" / "tiny_2025.3.1.sqlite.gz"
KERNEL, CALL, RANGE = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
PROCESS = 1 << 48 | 444 << 24  # nsys's id of a process; a thread is added to it
BARE_READ = f"""
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
for statement in (
    'SELECT total(start), total("end"), total(correlationId), total(globalPid), total(demangledName) FROM {KERNEL}',
    "SELECT total(start), total(globalTid), total(correlationId) FROM {CALL}",
    'SELECT total(start), total("end"), total(globalTid), total(eventType), total(length(text)) FROM {RANGE}',
):
    connection.execute(statement).fetchone()
"""


def write_capture(path: Path, kernels: int, ranges: int) -> None:
    """Writes a capture of this many kernels, each with its launch, and about this many ranges, three deep. Rows are as
    wide as real ones: other columns have the value of a real row."""
    path.write_bytes(gzip.decompress(REAL_CAPTURE.read_bytes()))
    with closing(sqlite3.connect(path)) as connection, connection:
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table not in (KERNEL, CALL, RANGE, "StringIds", "META_DATA_EXPORT"):
                connection.execute(f"DROP TABLE {table}")
        names = [(i, f"void kernel_{i}<float, {i}>(float const*, float*, int)") for i in range(60)]
        connection.execute("DELETE FROM StringIds")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [*names, (1000, "cudaLaunchKernel_v7000")])
        kernel = {"start": "5000 * n + 4000", "end": "5000 * n + 7000 + n % 97", "correlationId": "n + 1"}
        insert(connection, KERNEL, kernels, kernel | {"globalPid": PROCESS, "demangledName": "n % 60"})
        call = {"start": "5000 * n + 2000", "end": "5000 * n + 3500", "correlationId": "n + 1", "nameId": 1000}
        insert(connection, CALL, kernels, call | {"globalTid": PROCESS + 444})
        steps = max(ranges // 211, 1)
        innermost_ns = max(5000 * kernels // (200 * steps), 6)
        for level, (count, length) in enumerate(((1, 200), (10, 20), (200, 1))):  # in a step, and in innermost ranges
            begin, end = f"{length * innermost_ns} * n", f"{length * innermost_ns} * (n + 1)"
            times = {"start": f"{begin} + {level}", "end": f"{end} - {level}"}
            others = {"text": f"'level {level} part ' || n % 20", "eventType": 59, "globalTid": PROCESS + 444}
            insert(connection, RANGE, steps * count, times | others, empty=level == 0)


def insert(connection: sqlite3.Connection, table: str, rows: int, expressions: dict, *, empty: bool = True) -> None:
    """Inserts rows whose values are expressions of their number n, or those of the first row of the (emptied) table."""
    columns = [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]
    quoted = ", ".join(f'quote("{column}")' for column in columns)
    values = dict(zip(columns, connection.execute(f"SELECT {quoted} FROM {table}").fetchone(), strict=True))
    if empty:
        connection.execute(f"DELETE FROM {table}")
    numbers = f"WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {rows})"
    listed = ", ".join(map(str, (values | expressions).values()))
    connection.execute(f"INSERT INTO {table} {numbers} SELECT {listed} FROM numbers")


def cost(command: list[str], repeats: int = 1) -> tuple[float, float, float]:
    """(wall seconds, processor seconds, bytes of peak memory) of a process, each the smallest of several."""
    costs = []
    for _ in range(repeats):
        began = time.perf_counter()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                output.seek(0)
                sys.exit(output.read().decode()[-2000:])
        costs.append((time.perf_counter() - began, usage.ru_utime + usage.ru_stime, 1024 * usage.ru_maxrss))
    return tuple(map(min, zip(*costs, strict=True)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--ranges", type=int, help="default: a fifth of the kernels")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder, "capture.sqlite")
        write_capture(capture, options.kernels, options.ranges or options.kernels // 5)
        size = capture.stat().st_size
        bare = cost([sys.executable, "-c", BARE_READ, str(capture)], options.repeats)
        ours = cost([sys.executable, "-m", "kernel_tables", "kernels", str(capture)], options.repeats)
    print(f"{options.kernels:,} kernels, {size / 1e6:.0f} MB; kernel-tables kernels, and by sqlite3:")
    for name, of_command, of_read in zip(("wall", "processor"), ours, bare, strict=False):
        print(f"{name} time: {of_command:.2f} s, {of_read:.2f} s: ratio {of_command / of_read:.2f}")
    print(f"peak memory: {ours[2] / 1e6:.0f} MB, {bare[2] / 1e6:.0f} MB; ratio to the file {ours[2] / size:.2f}")
