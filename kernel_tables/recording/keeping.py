"""From what a profiler left behind to the capture that is kept, which tells nothing of the host."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from glob import escape
from itertools import chain, count
from pathlib import Path

from kernel_tables.embedded.kineto_capture import CaptureError, capture_tables, write_capture
from kernel_tables.embedded.kineto_trace import Trace, read_trace
from kernel_tables.errors import TraceError
from kernel_tables.files import full_disk_as_os_error
from kernel_tables.reading.nsys import export_report
from kernel_tables.reading.publishable import write_publishable
from kernel_tables.recording.inside.notes import trace_file
from kernel_tables.recording.program import NSYS_LOG, REPORT
from kernel_tables.recording.unfinished import name_unfinished_step
from kernel_tables.whole_files import written_whole

DEFAULT = Path("recording.sqlite")
ON_A_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")


def free_output(wanted: Path | None) -> Path:
    """Where the capture will be written. TraceError where a file of that name is there, or none can be made."""
    output = _numbered(DEFAULT) if wanted is None else wanted
    if there := _in_the_way(output):
        raise TraceError(f"{there}: there is such a file, and nothing is written over it; name another with -o FILE")
    try:
        with written_whole(output) as partial:
            partial.touch()
        output.unlink()
    except OSError as error:  # the folder is missing, or closed
        raise TraceError(
            f"{output}: {error.strerror}; no capture can be written there; name another with -o"
        ) from error
    return output


@dataclass(frozen=True)
class Kept:
    """What is kept of one process: the trace of its PyTorch, or its part of nsys's report, which holds them all."""

    pid: int
    by_nsys: bool
    torch_version: str
    ended_in_step: bool = False  # the program ended inside the last range `step`


def keep_recordings(handover: Path, output: Path, recorded: Sequence[Kept]) -> list[Path]:
    """The captures' paths, of one process or of the ranks of a run: OUTPUT, `output_rank1` and so on, or where one of
    these has appeared meanwhile, the next free number.

    All are whole, or none is there. Raises TraceError where there is nothing to make one of, OSError where the disk
    is full."""
    output = _numbered(output)
    paths = [_of_rank(output, number) for number in range(len(recorded))]
    with ExitStack() as whole:
        for path, process in zip(paths, recorded, strict=True):
            partial = whole.enter_context(written_whole(path))
            if process.by_nsys:
                write_publishable(_export(handover), partial, process=process.pid if len(recorded) > 1 else None)
            else:
                _write_trace(trace_file(handover, process.pid), partial, process.torch_version)
            if process.ended_in_step:
                with full_disk_as_os_error(path):
                    name_unfinished_step(partial)
    return paths


def _export(handover: Path) -> Path:
    """The export of the report, with what NCCL says of its calls; made once."""
    report, export = handover / REPORT, handover / "export.sqlite"
    if not report.exists():
        raise TraceError(f"nsys wrote no report; it said: {_last_line(handover / NSYS_LOG)}")
    return export if export.exists() else export_report(report, export, payloads=True)


def _write_trace(path: Path, target: Path, torch_version: str) -> None:
    try:
        trace = read_trace(path)
        if not trace.events:
            raise TraceError("nothing of PyTorch ran in the window; take a later or longer one")
        tables = capture_tables(trace, _is_of_a_gpu(trace), torch_version)
    except (CaptureError, ValueError) as error:
        raise TraceError(f"PyTorch's profiler left no usable trace: {error}") from error
    with full_disk_as_os_error(target):
        write_capture(tables, target)


def _is_of_a_gpu(trace: Trace) -> bool:
    return bool(trace.of(*ON_A_GPU))


def _numbered(path: Path) -> Path:
    """The path, or the first of recording-2.sqlite, recording-3.sqlite, ... that is free."""
    others = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return next(one for one in chain([path], others) if not _in_the_way(one))


def _of_rank(path: Path, number: int) -> Path:
    """Where the capture of one rank is kept, as the pipeline names its own; the first is PATH itself."""
    return path.with_name(f"{path.stem}_rank{number}{path.suffix}") if number else path


def _in_the_way(path: Path) -> Path | None:
    """A file that is there, and would be written over or taken for a rank's of the same run."""
    own = [path] if path.exists() or path.is_symlink() else []
    ranks = path.parent.glob(f"{escape(path.stem)}_rank[0-9]*{escape(path.suffix)}")
    return next(iter([*own, *ranks]), None)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"
