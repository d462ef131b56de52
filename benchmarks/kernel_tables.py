"""Measures commands on a capture, as processes, compared with reading its columns and with nsys stats.

    python -m benchmarks.kernel_tables [--folder FOLDER] [--repeats 3]
        [--sizes 1m_kernels 1m_ranges 200k_overlapping 10m_kernels 16m_ranges]

The bare read is the SELECTs that `kernels` needs, two tables at a time, into NumPy arrays, without checks. Makes each
capture once, starts every command REPEATS times (nsys once), and takes the fastest.
"""

import sys
import tempfile
from pathlib import Path

from benchmarks.harness import PYTHON, Costs, run
from benchmarks.made_capture import SIZES, write_capture
from kernel_tables.reading.nsys import version_numbers

BARE_READ = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from kernel_tables.reading.table_columns import GrowingColumn
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
NSYS_REPORTS_BEFORE_2023 = ("gpukernsum", "nvtxgpuproj", "nvtxkernsum")
LIMIT_S = 120  # an old nsys takes many minutes for some reports
DEFAULT = ["1m_kernels", "1m_ranges", "200k_overlapping"]
FOLDER = Path(tempfile.gettempdir()) / "kernel_tables_benchmark"


def main(*, folder: Path = FOLDER, sizes: list[str] = DEFAULT, repeats: int = 3) -> None:
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
    """The measured commands by name; the bare read first, nsys's reports if there is an nsys."""
    ours = {name: [*PYTHON, "kernel_tables", name, path] for name in ("kernels", "ranges", "diagnose")}
    ours["diagnose"] += ["--step-name", "level 0 part 0"]
    commands = {"reading the columns": [sys.executable, "-c", BARE_READ, path]}
    commands |= {f"kernel_tables {name}": command for name, command in ours.items()}
    if version := version_numbers():
        stats = ["nsys", "stats", "--format", "csv", "--output", "-", "--report"]
        for name in NSYS_REPORTS if version >= (2023,) else NSYS_REPORTS_BEFORE_2023:
            commands[f"nsys {version[0]}.{version[1]} stats {name}"] = [*stats, name, path]
    return commands


if __name__ == "__main__":
    run(main)
