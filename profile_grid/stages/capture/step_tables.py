"""The tables of one run, from its capture: kernels, phases and ranges by measured step, and findings.

The measured program opens `measure` > `step` > a phase (forward, loss, backward, optimizer, synchronize) > the parts of
the model. A kernel is counted in the step and phase that were open when it was launched. All times are integer
nanoseconds, except means.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cs336_model.program.variants.values import FP32
from kernel_recorder.nsys_profile import NSYS
from kernel_tables.attribution.path_text import as_path, names_in
from kernel_tables.diagnosis.custom_rules import rules_of_entries
from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.errors import TraceError
from kernel_tables.intervals import union
from kernel_tables.kernel_classes.categories import ON_TENSOR_CORES, users_rules
from kernel_tables.trace import Trace
from profile_grid.host.processes.job import combined_problem
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageResult
from profile_grid.results.run_tables import RunTables, tables_status
from profile_grid.stages.capture.capture_problems import errors_and_warnings
from profile_grid.study.table_spec import RANGE_COLUMNS, TableSpec, columns
from profile_grid.tables import classes, conservation, findings
from profile_grid.tables.names import MEASURE, OUTSIDE, STEP, WHOLE_STEP

DIRECTLY_IN_PHASE = ""  # the value of the column `range` for what is in no range inside its phase


def tables_of_file(
    capture: StageResult, sqlite: Path, extra_rules: Sequence[dict] = (), diagnosis_rules: Sequence[dict] = ()
) -> RunTables:
    """The status of a run's capture and its tables; no tables unless the capture is complete.

    Raises TraceError if a custom rule cannot be used, which is not the fault of the capture, and NotConserved if the
    tables lose something of the capture.
    """
    users_rules(extra_rules)  # only for its errors: below, a TraceError would count as a fault of the capture
    custom_rules = rules_of_entries(diagnosis_rules, "diagnosis_rules")
    if capture.status != COMPLETE:
        return RunTables(tables_status(capture.status, capture.reason), {})
    spec, device, backend = capture.program.spec, capture.program.machine.device, capture.facts["backend"]
    steps = spec["measured_steps"]
    try:
        with Trace(sqlite, extra_rules) as trace:
            errors, lesser_problems = errors_and_warnings(trace, measured_steps=steps, device=device, backend=backend)
            warnings = [str(problem) for problem in lesser_problems]
            if errors:
                return RunTables(tables_status(INCOMPLETE, str(combined_problem(errors)), warnings), {})
            activities, ranges = measured_activities(trace), measured_ranges(trace)
            found = findings.findings_table(diagnose(trace, STEP, custom_rules))
    except TraceError as error:
        return RunTables(tables_status(INCOMPLETE, str(error)), {})
    kernels, phases = kernel_table(activities), phase_table(activities, ranges)
    conservation.require_same("measured steps", phases["step"].nunique(), steps)
    if device != "cpu":
        warnings += tensor_core_warnings(kernels, spec["dimensions"]["precision"])
    elif backend == NSYS:
        warnings.append("nsys records no operators of a CPU program: wall times of ranges only, no kernels")
        missing = pd.array([pd.NA] * len(phases), dtype="Int64")
        phases = phases.assign(**{column.name: missing for column in GPU_TIMES_OF_A_PHASE})
    tables = {"kernels": kernels, "phases": phases, "ranges": range_table(activities, ranges), "findings": found}
    return RunTables(tables_status(COMPLETE, warnings=warnings), tables)


def measured_activities(trace: Trace) -> pd.DataFrame:
    """One row per activity (on a CPU, operator) of the measured window, with `step` (-1 outside), `phase`, `range`."""
    is_measured = trace.enclosing(MEASURE) >= 0
    activities, step_instances = trace.activities()[is_measured], trace.enclosing(STEP)[is_measured]
    phases, inner_ranges = _phases_and_inner_ranges(trace.paths)
    return activities.assign(
        step=pd.Series(step_instances, index=activities.index).map(_step_numbers(trace)).fillna(-1).astype("int64"),
        phase=phases[activities["path_id"]],
        range=inner_ranges[activities["path_id"]],
    ).reset_index(drop=True)


def measured_ranges(trace: Trace) -> pd.DataFrame:
    """One row per measured step and range instance in it, by start, with the columns `step`, `phase` and `range`."""
    instances = trace.range_instances()
    is_in_step = np.array([MEASURE in path and STEP in path for path in trace.paths], dtype=bool)
    instances = instances[is_in_step[instances["path_id"]]].sort_values(["start_ns", "instance"])
    step_starts = instances.loc[instances["name"] == STEP, "start_ns"].to_numpy()
    phases, inner_ranges = _phases_and_inner_ranges(trace.paths)
    return instances.assign(
        step=np.searchsorted(step_starts, instances["start_ns"].to_numpy(), side="right") - 1,
        phase=phases[instances["path_id"]],
        range=inner_ranges[instances["path_id"]],
    ).reset_index(drop=True)


def phase_instances(ranges: pd.DataFrame) -> pd.DataFrame:
    """The rows of `measured_ranges` that are phases, not ranges inside them."""
    return ranges[(ranges["phase"] != OUTSIDE) & (ranges["range"] == DIRECTLY_IN_PHASE)]


def kernel_table(activities: pd.DataFrame) -> pd.DataFrame:
    """One row per step x phase x range x name of a kernel or memory operation; raises NotConserved if a launch or a
    nanosecond is lost."""
    keys = ["step", "phase", "range", "name", "class"]
    grouped = activities.groupby(keys, sort=True, observed=True)["duration_ns"]
    table = grouped.agg(["count", "sum", "mean", "min", "max"]).reset_index()
    table.columns = KERNELS.names
    conservation.require_same("launches", table["launches"].sum(), len(activities))
    conservation.require_same("nanoseconds", table["total_ns"].sum(), activities["duration_ns"].sum())
    return table


def phase_table(activities: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """One row per step x phase, and one per step: wall time, span, and busy and summed GPU time. Raises NotConserved if
    the phases of the steps do not add up to the steps."""
    rows = []
    for step, step_ranges in ranges.groupby("step"):
        step_activities, phases = activities[activities["step"] == step], phase_instances(step_ranges)
        range_of_step = step_ranges[step_ranges["phase"] == OUTSIDE]
        rows.append(_phase_row(step, WHOLE_STEP, step_activities, range_of_step))
        # in the order in which they open; then OUTSIDE, which has activities, but no range
        for phase in dict.fromkeys([*phases["phase"], *sorted(set(step_activities["phase"]))]):
            phase_activities = step_activities[step_activities["phase"] == phase]
            rows.append(_phase_row(step, phase, phase_activities, phases[phases["phase"] == phase]))
    table = pd.DataFrame(rows, columns=PHASES.names)
    by_phase = table[table["phase"] != WHOLE_STEP]
    for column in ("kernel_ns", "kernels", "memop_ns", "memops"):
        conservation.require_same(column, by_phase[column].sum(), table.loc[table["phase"] == WHOLE_STEP, column].sum())
    return table


def range_table(activities: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """One row per step x phase x range: instances, wall time, and GPU time and launches, inner ranges included."""
    instances = ranges[ranges["phase"] != OUTSIDE]
    instances = instances.assign(wall_ns=instances["end_ns"] - instances["start_ns"])
    walls = instances.groupby(["step", "phase", "range"])["wall_ns"].agg(instances="count", wall_ns="sum")
    # an outer join: ranges may have no activities, and activities outside of all phases have no range
    table = walls.join(_inclusive_sums(activities[activities["step"] >= 0]), how="outer")
    return table.fillna(0).astype("int64").reset_index()[RANGES.names]


def _inclusive_sums(activities: pd.DataFrame) -> pd.DataFrame:
    """GPU time and counts by step, phase and range. The activities of inner ranges count in the outer ones, too."""
    is_kernel = ~activities["kind"].isin(classes.MEMORY_OPERATIONS)
    keys, duration_ns = ["step", "phase", "range"], activities["duration_ns"]
    terms = {
        "gpu_time_ns": duration_ns.where(is_kernel, 0), "kernels": is_kernel.astype("int64"),
        "memop_time_ns": duration_ns.where(~is_kernel, 0), "memops": (~is_kernel).astype("int64"),
    }  # fmt: skip
    sums = activities.assign(**terms).groupby(keys)[list(terms)].sum().reset_index()
    sums["range"] = [_outer_paths(path) for path in sums["range"]]
    return sums.explode("range").groupby(keys).sum()


def _outer_paths(path: str) -> list[str]:
    """The paths of a range and of those around it in its phase: for "block > norm", "", "block" and "block > norm"."""
    names = names_in(path)
    return [as_path(names[:length]) for length in range(len(names) + 1)]


def _phase_row(step: int, phase: str, activities: pd.DataFrame, ranges: pd.DataFrame) -> tuple:
    """The row of PHASES for the activities and the range instances of one phase, or of an entire step."""
    is_kernel = ~activities["kind"].isin(classes.MEMORY_OPERATIONS).to_numpy(dtype=bool)
    start_ns, end_ns = activities["start_ns"].to_numpy("int64"), activities["end_ns"].to_numpy("int64")
    duration_ns = end_ns - start_ns
    wall_ns = int((ranges["end_ns"] - ranges["start_ns"]).sum())
    span_ns = int(end_ns.max() - start_ns.min()) if len(end_ns) else 0
    kernel_ns, memop_ns = int(duration_ns[is_kernel].sum()), int(duration_ns[~is_kernel].sum())
    kernels, memops, busy_ns = int(is_kernel.sum()), int((~is_kernel).sum()), union(start_ns, end_ns).total_ns
    return step, phase, wall_ns, span_ns, busy_ns, kernel_ns, kernels, memop_ns, memops


def _phases_and_inner_ranges(paths: Iterable[tuple[str, ...]]) -> tuple[np.ndarray, np.ndarray]:
    """(phases, inner_ranges), by path: the name after `step`, or OUTSIDE if there is none; the path after that name."""
    phases, inner_ranges = [], []
    for path in paths:
        names = path[path.index(STEP) + 1 :] if STEP in path else ()
        phases.append(names[0] if names else OUTSIDE)
        inner_ranges.append(as_path(names[1:]))
    return np.array(phases, dtype=object), np.array(inner_ranges, dtype=object)


def _step_numbers(trace: Trace) -> dict[int, int]:
    """{instance id of a measured step: 0, 1, 2 ... in the order in which the steps began}"""
    instances = trace.range_instances()
    is_measured = np.array([MEASURE in path for path in trace.paths], dtype=bool)
    steps = instances[(instances["name"] == STEP) & is_measured[instances["path_id"]]].sort_values("start_ns")
    return {int(instance): number for number, instance in enumerate(steps["instance"])}


def tensor_core_warnings(kernels: pd.DataFrame, precision: str) -> list[str]:
    """Contradictions between the kernels (columns kernel, class, total_ns) of a GPU program and its precision: matrix
    multiplies on tensor cores in fp32, or none on them in another precision."""
    matmuls = kernels[classes.is_matmul(kernels["class"])]
    on_tensor_cores = matmuls["kernel"].str.contains(ON_TENSOR_CORES, case=False, regex=True)
    if precision == FP32 and on_tensor_cores.any():
        share = matmuls.loc[on_tensor_cores, "total_ns"].sum() / matmuls["total_ns"].sum()
        return [f"precision is fp32, and {100 * share:.0f} % of the matrix multiplies' time is on tensor cores"]
    if precision != FP32 and len(matmuls) and not on_tensor_cores.any():
        return [f"precision is {precision}, and no matrix multiply has a kernel whose name belongs to tensor cores"]
    return []


GPU_TIMES_OF_A_PHASE = columns("""
    gpu_span_ns | int | ns | start of the first kernel or memory operation to the end of the last
    gpu_busy_ns | int | ns | time in which at least one of them ran
    kernel_ns | int | ns | sum of the durations of kernels
    kernels | int | | kernels
    memop_ns | int | ns | sum of the durations of memory operations (copies and fills by the driver)
    memops | int | | memory operations
""")
TIMES_OF_A_PHASE = columns("wall_ns | int | ns | wall time of the NVTX range on the CPU", GPU_TIMES_OF_A_PHASE)
KERNELS = TableSpec(
    "kernels",
    "One row per run, step, phase, range and name of a kernel or memory operation",
    columns(
        RANGE_COLUMNS,
        """
    kernel | text | | full name of the kernel or memory operation; of an ATen operator on a CPU
    class | text | | kind of work, by the rules of kernel_tables
    launches | int | | executions
    total_ns | int | ns | sum of their durations
    mean_ns | float | ns | mean duration
    min_ns | int | ns | shortest
    max_ns | int | ns | longest
""",
    ),
)
PHASES = TableSpec(
    "phases",
    "One row per run, step and phase, and one with phase = step for the entire step",
    columns(
        """
    step | int | | number of the measured step, from 0
    phase | text | | range directly inside step, such as forward; (outside) for none; step: all of them
""",
        TIMES_OF_A_PHASE,
    ),
)
RANGES = TableSpec(
    "ranges",
    "One row per run, step, phase and range; launches of an inner range also count in the outer ones",
    columns(
        RANGE_COLUMNS,
        """
    instances | int | | times the range was opened
    wall_ns | int | ns | wall time of the range on the CPU, summed over instances
    gpu_time_ns | int | ns | sum of the durations of kernels launched inside
    kernels | int | | kernels launched inside
    memop_time_ns | int | ns | sum of the durations of memory operations launched inside
    memops | int | | memory operations launched inside
""",
    ),
)
TABLES = (findings.FINDINGS, KERNELS, PHASES, RANGES)
