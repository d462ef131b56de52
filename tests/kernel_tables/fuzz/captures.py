"""The small whole captures that are damaged: cuts of real ones, and made-up ones."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.kernel_tables.synthetic import START_END, Synthetic

REAL = Path(__file__).parents[2] / "captures"
WITH_TIMES = ("KERNEL", "MEMCPY", "RUNTIME", "SYNCHRONIZATION")


def write_captures(folder: Path) -> list[Path]:
    """The captures, written to FOLDER; those at the end are real and whole, and larger."""
    folder.mkdir(parents=True, exist_ok=True)
    real = [_unpacked(packed, folder) for packed in sorted(REAL.glob("*.gz"))]
    with_steps = [path for path in real if path.name.startswith(("tiny_2024", "tiny_2025"))]  # their ranges have text
    cuts = [_first_step(path, folder / f"cut_{path.name}") for path in with_steps]
    made = [_steps().write(folder / "steps.sqlite"), _many_kinds().write(folder / "many_kinds.sqlite")]
    return [*made, *cuts, *real]


def _unpacked(packed: Path, folder: Path) -> Path:
    path = folder / packed.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def _first_step(source: Path, target: Path) -> Path:
    """A copy of what happened in the first measured step, without the strings that nothing refers to."""
    target.write_bytes(source.read_bytes())
    with closing(sqlite3.connect(target)) as database, database:
        window = database.execute(
            "SELECT start, \"end\" FROM NVTX_EVENTS WHERE text = 'step' ORDER BY start"
        ).fetchone()
        for table in [f"CUPTI_ACTIVITY_KIND_{kind}" for kind in WITH_TIMES] + ["NVTX_EVENTS"]:
            outside = 'start < ? OR "end" > ?' + (" AND text IS NOT 'measure'" if table == "NVTX_EVENTS" else "")
            database.execute(f"DELETE FROM {table} WHERE {outside}", window)
        named = "UNION SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL UNION SELECT textId FROM NVTX_EVENTS"
        used = f"SELECT nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME {named}"
        database.execute(f"DELETE FROM StringIds WHERE id NOT IN (SELECT * FROM ({used}) WHERE TRUE)")
    with closing(sqlite3.connect(target)) as database:
        database.execute("VACUUM")
    return target


def _steps() -> Synthetic:
    """Twenty steps of a program with one thread and autograd's."""
    capture = Synthetic().range("measure", 0, 20_000).lasting(0, 30_000)
    for step in range(20):
        begin = 1000 * step
        capture.range("step", begin, begin + 990).range("forward", begin + 1, begin + 400)
        capture.range("backward", begin + 500, begin + 900, registered=True)
        for launch in range(5):
            capture.kernel(f"void gemm_{launch}<float, {launch}>(float*)", at=begin + 10 * launch + 2, duration=100)
            capture.kernel("elementwise_kernel", at=begin + 510 + launch, thread=2, duration=50)
    return capture


def _many_kinds() -> Synthetic:
    """One of everything that a capture may hold: copies, graphs, domains, start/end ranges, messages, processes."""
    capture = Synthetic().range("measure", 0, 900).range("step", 10, 800).lasting(0, 5000)
    capture.range("overlaps", 100, 850, kind=START_END, domain=3, registered=True).domain(3, "my domain")
    capture.range("left open", 820, None).range("elsewhere", 5, 700, thread=2).range("other", 0, 600, process=2)
    capture.kernel("flash_fwd_kernel", at=20).kernel("late", at=120, thread=3).kernel("early", at=None, correlation=0)
    capture.memcpy(at=200).memset(at=210).graph(7, at=220).kernel("theirs", at=300, process=2)
    return capture.diagnostic(2, "Something is old.").diagnostic(1, "Number of CUDA events collected: 7.")
