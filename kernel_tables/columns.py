"""The columns of tables: declared as text, one line each. Imports nothing heavy.

TABLES are what commands write, and the tables of a Profile. The page of columns is made of them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    dtype: str  # text, int, float, bool or object
    unit: str  # or ""
    meaning: str  # one line
    may_be_null: bool = False  # a value may be missing
    is_optional: bool = False  # the column may be missing


def columns(text: str) -> tuple[Column, ...]:
    """The columns in `text`, with lines "name | dtype | unit | meaning". "name?" means that the column may be missing,
    "dtype?" that a value may be missing. Raises ValueError for other lines."""
    declared: list[Column] = []
    for line in filter(str.strip, text.splitlines()):
        fields = [" ".join(field.split()) for field in line.split("|")]
        if len(fields) != 4 or fields[1].removesuffix("?") not in ("text", "int", "float", "bool", "object"):
            raise ValueError(f"{line.strip()!r} declares no column; write: name | dtype | unit | meaning")
        (name, dtype, unit, meaning), is_optional = fields, fields[0].endswith("?")
        name, may_be_null = name.removesuffix("?"), dtype.endswith("?")
        declared.append(Column(name, dtype.removesuffix("?"), unit, meaning, may_be_null, is_optional))
    return tuple(declared)


RANK = "rank? | int | | number of the rank; only for several captures or with `--ranks`"
STEP_OF_A_DEVICE = """
    rank | int | | number of the rank
    device | int | | number of its device
    step | int | | number of the step of this rank
"""
TABLES: dict[str, tuple[Column, ...]] = {
    "ranges": columns(f"""
    {RANK}
    range | text | | name of the range; with `--tree`, its path
    depth? | int | | only with `--tree`: 0 for the outermost range
    instances | int | | occurrences of the range; one that a CUDA graph captured occurs in each replay, too
    kernels | int | | kernels that it and its inner ranges launched; a replay recorded as one activity counts as one
    gpu_time_ns | int | ns | their time
    memops | int | | copies and fills
    memop_time_ns | int | ns | their time
    """),
    "kernels": columns(rf"""
    {RANK}
    range | text | | range path, joined with ` > `; a standalone `>` in a name is written `\>`
    kernel | text | | full name; `[CUDA memcpy ...]`, `[CUDA memset]`, `[CUDA graph N]`
    class | text | | class of the kernel
    launches | int | | number of launches
    total_ns | int | ns | GPU time of all launches
    mean_ns | float | ns | mean GPU time of a launch
    min_ns | int | ns | shortest GPU time of a launch
    max_ns | int | ns | longest GPU time of a launch
    std_ns | float? | ns | sample standard deviation; missing for one launch
    """),
    "classes": columns(f"""
    {RANK}
    class | text | | name of the class
    kernels | int | | distinct names of kernels
    launches | int | | number of launches
    total_ns | int | ns | their time
    share_of_gpu_time | float | of 1 | share of the time of all classes, memory operations included
    largest_kernel | text | | the kernel with the most time
    unknown_names | text | | names of the class `unknown`
    """),
    "check": columns("""
    capture? | text | | the file, if there are several captures
    severity | text | | `error`: numbers are wrong or missing; `warning`
    code | text | | see [Finding codes](finding-codes.md)
    message | text | | what is wrong, and what to do
    """),
    "diagnose": columns("""
    code | text | | the rule, see [Finding codes](finding-codes.md)
    message | text | | what it found
    abstained | bool | | the rule could not be checked; the message then says why
    evidence | object | | the numbers of the finding
    where | object | | range paths and kernels with their milliseconds per step
    gain_ms | float? | ms | the most that fixing the finding saves per step
    gain_percent | float? | % | `gain_ms` as a share of a step; of a step before recording, if `record` measured it
    advice | text | | what to do
    sure | text | | `certain`, `likely` or `possible`
    threshold | text | | the size from which the rule reports a finding
    source | text | | where the threshold comes from
    """),
    "diff": columns("""
    level | text | | `fact`, `phase`, `part`, `class` or `kernel`
    name | text | | name of the fact (GPU, version, number of steps), phase, part, class or kernel
    change | text | | `fact`, `appeared`, `gone`, `count` or `time`; `same` with `--all`
    before | text | | value of a fact in the first capture
    after | text | | the same in the second capture
    launches_before | float? | | launches per step in the first capture
    launches_after | float? | | the same in the second capture
    ms_before | float? | ms | milliseconds per step in the first capture
    ms_after | float? | ms | the same in the second capture
    ms_more | float? | ms | the difference
    ratio | float? | | `ms_after` / `ms_before`
    """),
    "host": columns("""
    process | int? | | id of the process
    thread | int? | | id of the thread
    where | text | | the phase, or with `--by range` the innermost range
    source | text | | see [See what the host did](host.md)
    function | text | | see [See what the host did](host.md)
    calls | int? | | calls of the function
    time_ns | int? | ns | their time
    own_ns | int? | ns | exclusive time; nested calls count once
    samples | int | | samples of the function
    samples_in_calls | int | | of these, inside calls
    estimated_ns | float? | ns | estimated time of a sampled function outside of calls
    launches | int? | | launches of the phase
    us_per_launch | float? | µs | own time per launch, µs
    """),
    "communication": columns(f"""{STEP_OF_A_DEVICE}
    step_ns | int | ns | time of the step: `compute_ns` + `exposed_communication_ns` + `exposed_memory_ns` + `idle_ns`
    compute_ns | int | ns | time in which a kernel computed
    exposed_communication_ns | int | ns | time in which only collectives ran
    exposed_memory_ns | int | ns | time in which only copies and fills ran
    idle_ns | int | ns | time in which nothing ran
    communication_ns | int | ns | time in which at least one collective ran
    overlapped_ns | int | ns | the part of it in which a kernel computed, too
    collectives | int | | number of collectives
    bytes | int? | bytes | sum over the collectives
    transfer_ns | int? | ns | sum over the collectives of the shortest kernel of any rank
    waiting_ns | int? | ns | the same sum for the rank's own kernels, less `transfer_ns`
    """),
    "communication --collectives": columns(f"""{STEP_OF_A_DEVICE}
    number | int | | number of the collective in the step, by launch, from 0
    operation | text | | `all-reduce`, `all-gather`, ...
    range | text | | innermost range around its launch
    kernel | text | | full name
    bytes | int? | bytes | all that is reduced, gathered or sent, on one rank
    bucket | int? | | number of the bucket, if a range names it
    start_ns | int | ns | start of its kernel, from the start of the step on this device
    duration_ns | int | ns | duration of its kernel
    exposed_ns | int | ns | the part of it in which no kernel computed
    transfer_ns | int? | ns | the shortest duration of any rank
    waiting_ns | int? | ns | `duration_ns` less `transfer_ns`
    algorithm_gb_per_s | float? | GB/s | bytes / transfer, 10^9 bytes a second
    bus_gb_per_s | float? | GB/s | bus bandwidth, as nccl-tests defines it
    """),
    "names": columns("""
    about | text | | `short name`, `class` or `rule`
    value | text | | the name, the class, or what the rule searches
    reason | text | | why, or where the rule searches
    """),
    "activities": columns(r"""
    kind | text | | `kernel`, `memcpy`, `memset` or `graph`; a row of `Profile.activities()`
    name | text | | full name of the kernel
    class | text | | class of the kernel
    range | text | | range path, joined with ` > `
    start_ns | int | ns | start, on the capture's own clock
    end_ns | int | ns | end, on the capture's own clock
    duration_ns | int | ns | duration on the GPU
    process | int | | global id of the process
    thread | int | | global id of the launching thread; -1 without a launch
    device | int | | number of the device; -1 for the CPU
    stream | int | | number of the stream
    launch_ns | int? | ns | start of the call that launched it
    path_id | int | | number of the path in `Profile.paths`
    """),
    "range_instances": columns("""
    instance | int | | number of the range, in order of opening; a row of `Profile.range_instances()`
    name | text | | name of the range
    domain | text | | name of its NVTX domain; empty for the default domain
    process | int | | global id of the process
    thread | int | | global id of the thread that opened it
    start_ns | int | ns | start, on the capture's own clock
    end_ns | int | ns | end; that of the capture for a range that was never closed
    path_id | int | | number of its path in `Profile.paths`, its own name last
    """),
}


def column_names(table: str) -> list[str]:
    """The names of the columns that `table`, one of TABLES, always has."""
    return [column.name for column in TABLES[table] if not column.is_optional]
