"""From the path that a user gives to an SQLite file that can be read: unpacks gzip, exports reports, and converts JSON
of PyTorch's profiler to the tables of captures."""

import gzip
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from kernel_tables.errors import TraceError, impossible
from kernel_tables.files import REPORT_SUFFIXES, first_bytes, full_disk_as_os_error
from kernel_tables.kineto import graphs, json_stream, ranges
from kernel_tables.kineto.capture import CaptureError, Table, capture_tables, write_capture
from kernel_tables.kineto.trace import CALL, DEVICE_KINDS, KERNEL, NONE, OPERATOR, TorchTrace
from kernel_tables.reading import nsys, schema, soundness

FIRST_BYTES = 4096
ADVICE = "give the JSON that torch.profiler wrote (export_chrome_trace)"
UP_TO_DAMAGE_OPTION = "--up-to-damage"


def is_json(path: Path) -> bool:
    """Whether a file, gzipped or not, begins like JSON or has its suffix."""
    begin = first_bytes(path, FIRST_BYTES)
    if begin.startswith(json_stream.GZIP_MAGIC):
        try:
            begin = zlib.decompressobj(json_stream.GZIP_WINDOW).decompress(begin, FIRST_BYTES)
        except zlib.error:
            begin = b""
    without_byte_order_mark = begin.removeprefix(b"\xef\xbb\xbf")
    begins_like_json = without_byte_order_mark.lstrip().startswith((b"{", b"["))
    return begins_like_json or path.name.removesuffix(".gz").endswith(".json")


def sqlite_of_trace(path: Path, target: Path, *, up_to_damage: bool) -> Path:
    """Writes the JSON at `path` to `target` as SQLite; with `up_to_damage`, invalid JSON as far as it is valid. Returns
    `target`.

    Raises TraceError for JSON that is invalid, not a trace, or without activities.
    """
    try:
        trace = TorchTrace(path, up_to_damage=up_to_damage)
        tables = capture_tables(trace, _is_of_gpu(trace), derive_ranges=True)
    except json_stream.InvalidJson as error:
        advice = f"write or copy the trace again, or read what it holds before that: {UP_TO_DAMAGE_OPTION}"
        raise impossible(path, "invalid_json", f"{error}; {advice}") from error
    except (json_stream.NotATrace, CaptureError) as error:
        raise TraceError(f"{path}: {error}; {ADVICE}") from error
    _add_facts(tables, trace)
    with full_disk_as_os_error(target):
        write_capture(tables, target)
    return target


def _is_of_gpu(trace: TorchTrace) -> bool:
    """Whether the program used a GPU. Raises CaptureError if the trace has no activities, or lost those of the GPU, or
    is a timeline of `kernel-tables trace`."""
    if schema.WRITER_KEY in trace.facts:
        raise CaptureError("a timeline written by `kernel-tables trace`, not a capture")
    if trace.count(*DEVICE_KINDS):
        return True
    if launches := sum("Launch" in name for name in trace.names_of(CALL)):
        raise CaptureError(
            f"a trace without kernels, though with {launches:,} calls that launch them: the profiler saw nothing of the"
            " GPU; record with ProfilerActivity.CUDA, and without another profiler around the program"
        )
    if trace.count(OPERATOR):
        return False
    events = ", ".join(
        f"{count:,} {category or 'without a category'}" for category, count in trace.counts.most_common(4)
    )
    raise CaptureError(f"a trace without kernels and operators (events by category: {events or 'none'})")


def _add_facts(tables: dict[str, Table], trace: TorchTrace) -> None:
    """Adds what the trace says about itself to the capture's metadata."""
    graph_node = tables[schema.KERNEL].get("graphNodeId", np.empty(0, np.int64))  # none without a GPU
    facts = {schema.NOTES_KEY: "\n".join(_notes(trace, graph_node))}
    if trace.whole_microseconds:
        facts[schema.RESOLUTION_KEY] = "1000"
    if trace.damage:
        facts[schema.DAMAGE_KEY] = trace.damage
    distributed = trace.facts.get("distributedInfo")
    if isinstance(distributed, dict):
        for key, name in ((schema.RANK_KEY, "rank"), (schema.RANKS_KEY, "world_size")):
            if isinstance(distributed.get(name), int):
                facts[key] = str(distributed[name])
    metadata = tables["META_DATA_EXPORT"]
    metadata["name"] += facts
    metadata["value"] += facts.values()


def _notes(trace: TorchTrace, graph_node: np.ndarray) -> Iterator[str]:
    """What the trace lacks, a line each. `graph_node` has the node of each kernel, NONE if it is unknown or none."""
    if trace.damage:
        yield f"only what comes before the damage was read: {trace.damage}"
    if not trace.count(*DEVICE_KINDS):
        yield "the trace holds nothing of a GPU: operators of PyTorch on the processor stand for kernels"
        return
    kernels = trace[KERNEL]
    without_call = np.count_nonzero(~np.isin(kernels["correlation"], trace[CALL]["correlation"]))
    if without_call:
        yield (
            f"{without_call:,} of {trace.count(KERNEL):,} kernels have no call in the trace (launched before it began):"
            " their time counts, their range is not known"
        )
    replays = trace[CALL]["correlation"][graphs.calls_named(trace, graphs.REPLAY)]
    is_replayed = np.isin(kernels["correlation"], replays)
    has_node = graph_node != NONE
    replayed = f"of {trace.count(KERNEL):,} kernels ran in replayed CUDA graphs"
    if count := int((is_replayed & has_node).sum()):
        yield f"{count:,} {replayed}: their ranges are those of the captured calls, in the order of the capture"
    if count := int((is_replayed & ~has_node).sum()):
        yield (
            f"{count:,} {replayed}: their range is that of the launch, since no capture in the trace certainly has the"
            " same calls; for their modules, begin the trace before the capture, or record with nsys:"
            " kernel-tables record --profiler nsys -- python train.py"
        )
    if trace.whole_microseconds:
        yield "times are whole microseconds: a kernel of 0.9 µs counts as 0 or 1"
    if not ranges.has_modules(trace):
        reason = "compiled models call none" if trace.facts.get("with_stack") else "with_stack=True records them"
        yield f"no call of a module is in the trace ({reason}): ranges are annotations of the program and operators"


@contextmanager
def sqlite_file(path: str | os.PathLike, *, up_to_damage: bool = False) -> Iterator[Path]:
    """The path of a complete SQLite file with the content of `path`, inside the block.

    `path` is an SQLite file, an nsys report (exported by the nsys on PATH), JSON of PyTorch's profiler, or any of them
    gzipped. Unpacked and converted files are in a temporary folder that the block deletes. With `up_to_damage`, invalid
    JSON is read as far as it is valid. Raises TraceError for other files.
    """
    path = Path(path)
    _require_readable(path)
    with tempfile.TemporaryDirectory(prefix="kernel_tables_") as folder:
        if is_json(path):
            yield sqlite_of_trace(path, Path(folder) / "trace.sqlite", up_to_damage=up_to_damage)
            return
        is_packed = first_bytes(path, len(json_stream.GZIP_MAGIC)) == json_stream.GZIP_MAGIC
        unpacked = _unpacked(path, Path(folder)) if is_packed else path
        sqlite = unpacked
        if unpacked.suffix in REPORT_SUFFIXES:
            sqlite = nsys.export_report(unpacked, Path(folder) / f"{unpacked.stem}.sqlite", payloads=True)
        soundness.require_whole_sqlite(sqlite, user_path=path)
        yield sqlite


def _require_readable(path: Path) -> None:
    if not path.exists():
        raise TraceError(f"{path}: no such file; check the path, or whether the profiler wrote a report at all")
    if path.is_dir():
        raise TraceError(f"{path}: a folder, not a capture; name the .sqlite or .nsys-rep file in it")
    if not path.is_file():
        raise TraceError(f"{path}: not a file but a pipe or a device; write the capture to a file and name that")
    if not os.access(path, os.R_OK):
        raise TraceError(f"{path}: not readable by this user; change its permissions or copy it")


def _unpacked(path: Path, folder: Path) -> Path:
    """Unpacks `path` into `folder`, and returns the path of the file there, which is named without `.gz`."""
    target = folder / (path.stem if path.suffix == ".gz" else path.name)
    try:
        with gzip.open(path, "rb") as packed, target.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(
            f"{path}: cannot be unpacked ({error}); the gzip file is cut off or damaged: copy it again"
        ) from error
    return target
