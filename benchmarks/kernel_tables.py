"""How long the `kernels` command takes, as a whole process, against merely reading its columns and against nsys stats.

    python -m benchmarks.kernel_tables [--folder FOLDER] [--repeats 3]
        [--sizes 1m_kernels 1m_ranges 200k_overlapping 10m_kernels]

The bare read is the SELECTs that the command needs, two tables at a time, into numpy arrays; nothing is proven of them.
Makes each capture once, starts every command REPEATS times (nsys once), takes the fastest, and prints a Markdown
table with ratios to the bare read and peak memory.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.made_capture import SIZES, Size, write_capture
from benchmarks.whole_process import Measured, fastest
from kernel_tables.reading.nsys import version_numbers

BARE_READ = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from kernel_tables.reading.growing import GrowingColumn
from kernel_tables.reading.large_queries import use_batches

def read(columns):
    values = [GrowingColumn() for _ in columns.partition(" FROM ")[0].split(", ") if _ != "text"]

    def use(batch):
        for column, more in zip(values, batch.columns):
            column.append(more)

    use_batches(Path(sys.argv[1]), Path(sys.argv[1]), f"SELECT {columns}", use, lambda: None)

with ThreadPoolExecutor(2) as pool:
    list(pool.map(read, (
        'start, "end", correlationId, globalPid, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL',
        "start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        'start, "end", globalTid, textId, eventType, text FROM NVTX_EVENTS',
    )))
"""
NSYS_REPORTS = ("cuda_gpu_kern_sum", "nvtx_gpu_proj_sum", "nvtx_kern_sum")
TIME_LIMIT_S = 120  # an old nsys takes many minutes for some reports
NSYS_REPORTS_BEFORE_2023 = ("gpukernsum", "nvtxgpuproj", "nvtxkernsum")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "kernel_tables_benchmark")
    parser.add_argument(
        "--sizes",
        nargs="+",
        choices=[size.name for size in SIZES],
        default=["1m_kernels", "1m_ranges", "200k_overlapping"],
    )
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for size in SIZES:
        if size.name in arguments.sizes:
            path = arguments.folder / f"{size.name}.sqlite"
            if not path.exists():
                write_capture(path, size)
            print(report(size, path, arguments.repeats))


def report(size: Size, path: Path, repeats: int) -> str:
    """The measured table of one capture."""
    lines = [
        f"{size.kernels:,} kernels, as many launches, {size.ranges:,} ranges {len(size.ranges_by_level)} deep"
        f"{', overlapping without nesting' if size.overlap > 1 else ''}:"
        f" {path.stat().st_size / 1e6:.0f} MB, {os.cpu_count()} cores\n",
        "| whole process | wall s | CPU s | peak MiB | x bare read |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    bare: Measured | None = None
    for name, command in commands(path).items():
        found = fastest(command, 1 if command[0] == "nsys" else repeats, TIME_LIMIT_S)
        bare = bare or (found if isinstance(found, Measured) else None)
        lines.append(f"| {name} | {_cells(found, bare)} |")
    return "\n".join(lines) + "\n"


def commands(path: Path) -> dict[str, list[str]]:
    """What is measured, by name; the bare read first, nsys's reports where there is an nsys."""
    python = sys.executable
    diagnose = [python, "-m", "kernel_tables", "diagnose"]
    ours = {
        "reading the columns": [python, "-c", BARE_READ, str(path)],
        "kernel_tables kernels": [python, "-m", "kernel_tables", "kernels", str(path)],
        "kernel_tables ranges": [python, "-m", "kernel_tables", "ranges", str(path)],
        "kernel_tables diagnose": [*diagnose, str(path), "--step-name", "level 0 part 0"],
    }
    version = version_numbers()
    if not version:
        return ours
    reports = NSYS_REPORTS if version >= (2023,) else NSYS_REPORTS_BEFORE_2023
    stats = ["nsys", "stats", "--format", "csv", "--output", "-", "--report"]
    year = ".".join(map(str, version[:2]))
    return ours | {f"nsys {year} stats {name}": [*stats, name, str(path)] for name in reports}


def _cells(found: Measured | str, bare: Measured | None) -> str:
    if isinstance(found, str):
        return f"{found} | | | "
    ratio = found.wall_s / bare.wall_s if bare else float("nan")
    return f"{found.wall_s:.2f} | {found.cpu_s:.2f} | {found.peak_mib:.0f} | {ratio:.2f}"


if __name__ == "__main__":
    main()
