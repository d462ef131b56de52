"""JSON of PyTorch's profiler, converted to the tables of captures."""

import zlib
from pathlib import Path

import numpy as np

from kernel_tables.errors import TraceError, impossible
from kernel_tables.files import first_bytes, full_disk_as_os_error
from kernel_tables.kineto.capture import CaptureError, Table, capture_tables, write_capture
from kernel_tables.kineto.json_stream import GZIP_MAGIC, GZIP_WINDOW, InvalidJson, NotATrace
from kernel_tables.kineto.ranges import has_modules
from kernel_tables.kineto.trace import CALL, KERNEL, ON_DEVICE, OPERATOR, TorchTrace
from kernel_tables.reading.schema import DAMAGE_KEY, NOTES_KEY, RANK_KEY, RANKS_KEY, RESOLUTION_KEY, WRITER_KEY

FIRST_BYTES = 4096
ORIGIN = "give the JSON that torch.profiler wrote (export_chrome_trace)"
UP_TO_DAMAGE = "--up-to-damage"


def is_json(path: Path) -> bool:
    """Whether a file, gzipped or not, begins like JSON or has its suffix."""
    begin = first_bytes(path, FIRST_BYTES)
    if begin.startswith(GZIP_MAGIC):
        try:
            begin = zlib.decompressobj(GZIP_WINDOW).decompress(begin, FIRST_BYTES)
        except zlib.error:
            begin = b""
    begins_so = begin.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"["))
    return begins_so or path.name.removesuffix(".gz").endswith(".json")


def sqlite_of_trace(path: Path, target: Path, *, up_to_damage: bool) -> Path:
    """Writes the JSON at `path` to `target` as SQLite; with `up_to_damage`, invalid JSON as far as it is valid.

    Raises TraceError for JSON that is invalid, not a trace, or without activities.
    """
    try:
        trace = TorchTrace(path, up_to_damage=up_to_damage)
        tables = capture_tables(trace, _is_of_gpu(trace), without_marks=True)
    except InvalidJson as error:
        advice = f"write or copy the trace again, or read what it holds before that: {UP_TO_DAMAGE}"
        raise impossible(path, "invalid_json", f"{error}; {advice}") from error
    except (NotATrace, CaptureError) as error:
        raise TraceError(f"{path}: {error}; {ORIGIN}") from error
    _add_facts(tables["META_DATA_EXPORT"], trace)
    with full_disk_as_os_error(target):
        write_capture(tables, target)
    return target


def _is_of_gpu(trace: TorchTrace) -> bool:
    """Whether the program used a GPU. CaptureError if the trace has no activities."""
    if WRITER_KEY in trace.facts:
        raise CaptureError("a timeline written by `kernel-tables trace`, not a capture")
    if trace.count(*ON_DEVICE):
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


def _add_facts(metadata: Table, trace: TorchTrace) -> None:
    facts = {NOTES_KEY: "\n".join(_notes(trace))}
    if trace.whole_microseconds:
        facts[RESOLUTION_KEY] = "1000"
    if trace.damage:
        facts[DAMAGE_KEY] = trace.damage
    ranks = trace.facts.get("distributedInfo")
    ranks = ranks if isinstance(ranks, dict) else {}
    for key, name in ((RANK_KEY, "rank"), (RANKS_KEY, "world_size")):
        if isinstance(ranks.get(name), int):
            facts[key] = str(ranks[name])
    for name, value in facts.items():
        metadata["name"].append(name)
        metadata["value"].append(value)


def _notes(trace: TorchTrace):
    """What the trace lacks, a line each."""
    if trace.damage:
        yield f"only what comes before the damage was read: {trace.damage}"
    if not trace.count(*ON_DEVICE):
        yield "the trace holds nothing of a GPU: operators of PyTorch on the processor stand for kernels"
        return
    kernels = trace[KERNEL]
    launched = set(trace[CALL]["correlation"].tolist())
    without = sum(number not in launched for number in kernels["correlation"].tolist())
    if without:
        yield (
            f"{without:,} of {trace.count(KERNEL):,} kernels have no call in the trace (launched before it began):"
            " their time counts, their range is not known"
        )
    names = trace.names_of(CALL)
    graphs = [row for row, name in enumerate(names) if "GraphLaunch" in name]
    replayed = int(np.isin(kernels["correlation"], trace[CALL]["correlation"][graphs]).sum())
    if replayed:
        yield (
            f"{replayed:,} of {trace.count(KERNEL):,} kernels ran in replayed CUDA graphs: their range is that of the"
            " launch, since the trace does not say where the graph's nodes were captured (nsys does)"
        )
    if trace.whole_microseconds:
        yield "times are whole microseconds: a kernel of 0.9 µs counts as 0 or 1"
    if not has_modules(trace):
        reason = "compiled models call none" if trace.facts.get("with_stack") else "with_stack=True records them"
        yield f"no call of a module is in the trace ({reason}): ranges are annotations of the program and operators"
