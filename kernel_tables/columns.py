"""The columns of every table: what commands write, and what `kernel_tables.read` gives.

The page of columns and the JSON schema are made of them.
"""

from typing import Any, NamedTuple

from kernel_tables.markdown import code, compact_table

SCHEMA_VERSION = 1  # of the JSON; a column that is renamed, removed or of another type makes it a new one
SCHEMA = "https://json-schema.org/draft/2020-12/schema"


class Column(NamedTuple):
    """What a column holds. `may_be_null`: a value may be missing; `is_optional`: so may the column."""

    type: str  # of JSON
    meaning: str
    may_be_null: bool = False
    is_optional: bool = False


def _text(meaning: str, **more: bool) -> Column:
    return Column("string", meaning, **more)


def _count(meaning: str, **more: bool) -> Column:
    return Column("integer", meaning, **more)


def _number(meaning: str, **more: bool) -> Column:
    return Column("number", meaning, **more)


RANK = {"rank": _count("number of the rank; of several captures, or with `--ranks`", is_optional=True)}
STEP = {"rank": _count("number of the rank"), "device": _count("number of its device"), "step": _count("of the rank")}
TABLES: dict[str, dict[str, Column]] = {
    "ranges": RANK
    | {
        "range": _text("name of the range; with `--tree`, its path"),
        "depth": _count("only with `--tree`: 0 for the outermost range", is_optional=True),
        "instances": _count("occurrences of the range; one that a CUDA graph captured occurs in each replay, too"),
        "kernels": _count("kernels that it and its inner ranges launched; a replayed graph counts as one"),
        "gpu_time_ns": _count("their time"),
        "memops": _count("copies and fills"),
        "memop_time_ns": _count("their time"),
    },
    "kernels": RANK
    | {
        "range": _text(r"range path, joined with ` > `; a standalone `>` in a name is written `\>`"),
        "kernel": _text("full name; `[CUDA memcpy ...]`, `[CUDA memset]`, `[CUDA graph N]`"),
        "class": _text("class of the kernel"),
        "launches": _count("number of launches"),
        "total_ns": _count("time of all launches"),
        "mean_ns": _number("mean time of a launch"),
        "min_ns": _count("shortest launch"),
        "max_ns": _count("longest launch"),
        "std_ns": _number("sample standard deviation; missing for one launch", may_be_null=True),
    },
    "classes": RANK
    | {
        "class": _text("name of the class"),
        "kernels": _count("distinct names of kernels"),
        "launches": _count("number of launches"),
        "total_ns": _count("their time"),
        "share_of_gpu_time": _number("of all classes, memory operations included"),
        "largest_kernel": _text("the kernel with the most time"),
        "unknown_names": _text("names of the class `unknown`"),
    },
    "check": {
        "capture": _text("the file, if there are several captures", is_optional=True),
        "severity": _text("`error`: numbers are wrong or missing; `warning`"),
        "code": _text("see [Finding codes](finding-codes.md)"),
        "message": _text("what is wrong, and what to do"),
    },
    "diagnose": {
        "code": _text("the rule, see [Finding codes](finding-codes.md)"),
        "message": _text("what it found"),
        "abstained": Column("boolean", "the rule could not be checked; the message then says why"),
        "evidence": Column("object", "the numbers of the finding"),
        "where": Column("object", "range paths and kernels with their milliseconds per step"),
        "gain_ms": _number("the most that fixing the finding saves per step", may_be_null=True),
        "gain_percent": _number("the same, of the span", may_be_null=True),
        "advice": _text("what to do"),
        "sure": _text("`certain`, `likely` or `possible`"),
        "threshold": _text("the size from which the rule reports"),
        "source": _text("where the rule comes from"),
    },
    "diff": {
        "level": _text("`fact`, `phase`, `part`, `class` or `kernel`"),
        "name": _text("of what is compared"),
        "change": _text("`fact`, `appeared`, `gone`, `count` or `time`; `same` with `--all`"),
        "before": _text("of a fact: its value in the first capture"),
        "after": _text("the same in the second capture"),
        "launches_before": _number("launches per step in the first capture", may_be_null=True),
        "launches_after": _number("the same in the second capture", may_be_null=True),
        "ms_before": _number("milliseconds per step in the first capture", may_be_null=True),
        "ms_after": _number("the same in the second capture", may_be_null=True),
        "ms_more": _number("the difference", may_be_null=True),
        "ratio": _number("`ms_after` / `ms_before`", may_be_null=True),
    },
    "host": {
        "process": _count("id of the process", may_be_null=True),
        "thread": _count("id of the thread", may_be_null=True),
        "where": _text("the phase, or with `--by range` the innermost range"),
        "source": _text("see [See what the host did](host.md)"),
        "function": _text("see [See what the host did](host.md)"),
        "calls": _count("calls of the function", may_be_null=True),
        "time_ns": _count("their time", may_be_null=True),
        "own_ns": _count("exclusive time; nested calls count once", may_be_null=True),
        "samples": _count("samples of the function"),
        "samples_in_calls": _count("of these, inside calls"),
        "estimated_ns": _number("estimated time of a sampled function outside of calls", may_be_null=True),
        "launches": _count("launches of the phase", may_be_null=True),
        "us_per_launch": _number("own time per launch, µs", may_be_null=True),
    },
    "communication": STEP
    | {
        "step_ns": _count("`compute_ns` + `exposed_communication_ns` + `exposed_memory_ns` + `idle_ns`"),
        "compute_ns": _count("while a kernel computed"),
        "exposed_communication_ns": _count("while only collectives ran"),
        "exposed_memory_ns": _count("while only copies and fills ran"),
        "idle_ns": _count("while nothing ran"),
        "communication_ns": _count("while at least one collective ran"),
        "overlapped_ns": _count("of that, while a kernel computed"),
        "collectives": _count("their number"),
        "bytes": _count("sum over the collectives", may_be_null=True),
        "transfer_ns": _count("the shortest kernel of each collective over the ranks, added up", may_be_null=True),
        "waiting_ns": _count("what the rank's own kernels took beyond that", may_be_null=True),
    },
    "communication --collectives": STEP
    | {
        "number": _count("in the step, by launch, from 0"),
        "operation": _text("`all-reduce`, `all-gather`, ..."),
        "range": _text("around its launch, innermost"),
        "kernel": _text("full name"),
        "bytes": _count("all that is reduced, gathered or sent, on one rank", may_be_null=True),
        "bucket": _count("where a range names it", may_be_null=True),
        "start_ns": _count("from the start of the step on this device"),
        "duration_ns": _count("of its kernel"),
        "exposed_ns": _count("of that, while no kernel computed"),
        "transfer_ns": _count("the shortest duration over the ranks", may_be_null=True),
        "waiting_ns": _count("the duration less that", may_be_null=True),
        "algorithm_gb_per_s": _number("bytes / transfer, 10^9 bytes a second", may_be_null=True),
        "bus_gb_per_s": _number("of the busiest link, as NCCL's own tests count", may_be_null=True),
    },
    "names": {
        "about": _text("what the row is about"),
        "written": _text("the text in the name"),
        "meaning": _text("what it means"),
    },
    "activities": RANK
    | {
        "kind": _text("`kernel`, `memcpy`, `memset` or `graph`"),
        "name": _text("full name of the kernel"),
        "class": _text("class of the kernel"),
        "range": _text("range path around its launch, joined with ` > `"),
        "start_ns": _count("on the capture's own clock"),
        "end_ns": _count("on the capture's own clock"),
        "duration_ns": _count("on the GPU"),
        "process": _count("global id of the process"),
        "thread": _count("global id of the launching thread; -1 without a launch"),
        "device": _count("number of the device; -1 for the processor"),
        "stream": _count("number of the stream"),
        "launch_ns": _count("start of the call that launched it", may_be_null=True),
    },
}
OF_READ = ("activities",)  # tables that no command writes


def as_markdown() -> str:
    """All tables with their columns as a Markdown table."""
    rows = [
        (code(table) if place == 0 else "", code(name), column.meaning)
        for table, columns in TABLES.items()
        for place, (name, column) in enumerate(columns.items())
    ]
    return compact_table(("table", "column", "meaning"), rows)


def json_schema() -> dict[str, Any]:
    """The JSON schema of what every command writes with `--format json`, by the command's name in `$defs`."""
    tables = {name: _array_schema(columns) for name, columns in TABLES.items() if name not in OF_READ}
    return {"$schema": SCHEMA, "$id": f"kernel-tables/{SCHEMA_VERSION}", "version": SCHEMA_VERSION, "$defs": tables}


def _array_schema(columns: dict[str, Column]) -> dict[str, Any]:
    properties = {
        name: {"type": [column.type, "null"] if column.may_be_null else column.type, "description": column.meaning}
        for name, column in columns.items()
    }
    required = [name for name, column in columns.items() if not column.is_optional]
    item = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return {"type": "array", "items": item}
