"""From what a profiler left behind to the capture that is kept, which tells nothing of the host."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from kernel_tables.embedded.kineto_capture import CaptureError, capture_tables, write_capture
from kernel_tables.embedded.kineto_trace import Trace, read_trace
from kernel_tables.errors import TraceError
from kernel_tables.files import full_disk_as_os_error
from kernel_tables.reading.nsys import export_report
from kernel_tables.reading.publishable import write_publishable
from kernel_tables.recording.program import NSYS_LOG, REPORT
from kernel_tables.recording.unfinished import name_unfinished_step
from kernel_tables.whole_files import written_whole

DEFAULT = Path("recording.sqlite")
ON_A_GPU = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")


def free_output(wanted: Path | None) -> Path:
    """Where the capture will be written. TraceError where a file of that name is there, or none can be made."""
    output = _numbered(DEFAULT) if wanted is None else wanted
    if output.exists() or output.is_symlink():
        raise TraceError(f"{output}: there is such a file, and nothing is written over it; name another with -o FILE")
    try:
        with written_whole(output) as partial:
            partial.touch()
        output.unlink()
    except OSError as error:  # the folder is missing, or closed
        raise TraceError(
            f"{output}: {error.strerror}; no capture can be written there; name another with -o"
        ) from error
    return output


def keep_recording(
    handover: Path, output: Path, *, by_nsys: bool, torch_version: str, ended_in_step: bool = False
) -> Path:
    """The capture's path: OUTPUT, or where such a file has appeared meanwhile, the next free number. ENDED_IN_STEP says
    that the program ended inside the last range `step`.

    It is whole or not there. Raises TraceError where there is nothing to make it of, OSError where the disk is full."""
    output = output if not output.exists() else _numbered(output)
    with written_whole(output) as partial:
        if by_nsys:
            _publish_report(handover, partial)
        else:
            _write_trace(handover / "trace.json", partial, torch_version)
        if ended_in_step:
            with full_disk_as_os_error(output):
                name_unfinished_step(partial)
    return output


def _publish_report(handover: Path, target: Path) -> None:
    report = handover / REPORT
    if not report.exists():
        raise TraceError(f"nsys wrote no report; it said: {_last_line(handover / NSYS_LOG)}")
    write_publishable(export_report(report, handover / "export.sqlite"), target)


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
    """The path, or the first of recording-2.sqlite, recording-3.sqlite, ... that is not there."""
    others = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in count(2))
    return path if not path.exists() else next(other for other in others if not other.exists())


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"
