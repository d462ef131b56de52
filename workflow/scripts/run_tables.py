"""The tables of one run: from capture.json and its captures to kernels, phases, ranges, findings, and status.json.

    python -m workflow.scripts.run_tables results/runs/RUN/capture.json CLASSES RULES

The measured program opens measure > step > a phase (forward, loss, backward, optimizer) > the parts of the model. A
kernel counts in the step and phase that were open when it was launched. Times are integer nanoseconds. If a launch or a
nanosecond is lost on the way, or the capture is incomplete, this fails. A run that is no result of its program, such as
one that is out of memory, has tables without rows. Tables go beside capture.json.
"""

from cs336_model import locks

if __name__ == "__main__":
    LOCK = locks.shared()  # nothing heavy is imported beside a measured step

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd

from cs336_model.results import BadResult, Capture, read_result
from kernel_tables.attribution import names_in, path_text
from kernel_tables.classes import ON_TENSOR_CORES, family
from kernel_tables.diagnose import as_table, rules_of_entries
from kernel_tables.errors import ERROR, WARNING, NotConserved, TraceError
from kernel_tables.intervals import union
from kernel_tables.output import write_text
from kernel_tables.profile import Profile, read
from workflow.tables import declared_columns, write_tables

TABLES = ("kernels", "phases", "ranges", "findings", "communication_steps")
MEMORY_OPERATIONS = ("memcpy", "memset")
OUTSIDE = "(outside)"


def main(result: Path, classes: Sequence[dict] = (), rules: Sequence[dict] = ()) -> None:
    """Writes TABLES and status.json beside `result`. `classes` and `rules` are kernel_classes and diagnosis_rules of
    config.yaml. Raises TraceError or BadResult, one line each."""
    custom_rules, folder, capture = rules_of_entries(rules, "diagnosis_rules"), result.parent, read_result(result)
    made, warnings = {}, []
    if capture.status == "complete":
        paths = [folder / f"capture{f'_rank{rank}' if rank else ''}.sqlite" for rank in range(capture.ranks)]
        try:
            made, warnings = make_run_tables(capture, paths, classes, custom_rules)
        except NotConserved:
            raise
        except TraceError as error:
            again = f"capture again: snakemake --forcerun {result}"
            raise TraceError(f"{paths[0]} gives no tables: {error}; {again}") from None
    write_tables(made, [folder / f"{name}.parquet" for name in TABLES], keys=False)
    status = {"status": capture.status, "reason": capture.reason, "warnings": warnings}
    write_text(json.dumps(status, indent=1) + "\n", folder / "status.json")


def make_run_tables(
    capture: Capture, paths: Sequence[Path], classes: Sequence[dict], custom_rules: Sequence
) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """(TABLES by name, warnings) of a complete capture, from its files in the order of the ranks; all but
    communication_steps are of rank 0. Raises TraceError if a file lacks something, and NotConserved if a table does."""
    spec, device = capture.key["spec"], capture.machine.device
    with ExitStack() as stack:
        profiles = [stack.enter_context(read(path, classes)) for path in paths]
        found = [check_capture(profile, capture, rank) for rank, profile in enumerate(profiles)]
        warnings = list(dict.fromkeys(chain.from_iterable(found)))  # each once, of whichever ranks
        made = {"communication_steps": sum_communication(profiles)} if len(profiles) > 1 else {}
        activities, ranges = place_in_steps(profiles[0])
        made["findings"] = pd.DataFrame(as_table(profiles[0].diagnose("step", custom_rules)))
    kernels, phases = sum_kernels(activities), sum_phases(activities, ranges)
    require_same("measured steps", phases["step"].nunique(), spec["measured_steps"])
    if device != "cpu":
        warnings += check_tensor_cores(kernels, spec["precision"])
    elif capture.profiler == "nsys":
        warnings.append("nsys records no operators of a CPU program: wall times of ranges only, no kernels")
        measured = [name for name in phases if name not in ("step", "phase", "wall_ns")]
        phases = phases.assign(**dict.fromkeys(measured, pd.array([pd.NA] * len(phases), dtype="Int64")))
    return made | {"kernels": kernels, "phases": phases, "ranges": sum_ranges(activities, ranges)}, warnings


def check_capture(profile: Profile, capture: Capture, rank: int) -> list[str]:
    """What may be odd in the file of a rank, once of each kind. Raises TraceError if it is incomplete. The messages of
    nsys itself name the host, so they are printed (to the log), and another text stands for them."""
    texts = {
        "nsys_lost_events": "nsys lost events: times and counts may be too small; capture less at a time",
        "nsys_error": "nsys reports an error: what it failed to record is missing",
        "nsys_warning": "nsys printed a warning, but no loss of events is known",
        "nsys_older_than_driver": "nsys does not know the CUDA of this driver: install a newer nsys",
    }
    expected = ["nsys_hedge"]  # it is covered by the checks that all steps are there and alike
    expected += ["no_kernels"] if capture.profiler == "nsys" and capture.machine.device == "cpu" else []
    found: dict[str, dict[str, str]] = {ERROR: {}, WARNING: {}}  # the first message of each code
    for finding in profile.check(expected_steps=capture.key["spec"]["measured_steps"], equal_steps=True):
        if finding.code not in expected:
            if finding.code in texts:
                print(f"{finding.code}: {finding.message}", file=sys.stderr)
            found[finding.severity].setdefault(finding.code, texts.get(finding.code, finding.message))
    if errors := found[ERROR].values():
        raise TraceError(f"{f'rank {rank}: ' if rank else ''}{'; '.join(errors)}")
    return list(found[WARNING].values())


def sum_communication(profiles: Sequence[Profile]) -> pd.DataFrame:
    """One row per rank and device: means over its steps. Raises TraceError if the ranks do not fit together."""
    from kernel_tables.ranks import communication, findings_of_ranks, ranks_of

    ranks = ranks_of(profiles)
    for finding in findings_of_ranks(ranks, "step"):
        if finding.severity == ERROR:
            raise TraceError(finding.message)
    steps = communication(ranks, "step").drop(columns="step").set_index(["rank", "device"]).astype("float64")
    means = steps.groupby(["rank", "device"], sort=False).mean().reset_index()
    means[means.filter(like="_ns").columns] /= 1e6
    means = means.rename(columns=lambda name: name.replace("_ns", "_ms"))
    return means.assign(overlap=means["overlapped_ms"] / means["communication_ms"])


def place_in_steps(profile: Profile) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(activities or, on a CPU, operators of the measured window; range instances in its steps, by start), with the
    columns `step`, the number of the measured step (−1 outside), `phase`, and `range`, the path inside the phase."""
    inside = [path[path.index("step") + 1 :] if "step" in path else () for path in profile.paths]
    phases = np.array([names[0] if names else OUTSIDE for names in inside], dtype=object)
    inner = np.array([path_text(names[1:]) for names in inside], dtype=object)
    is_in_step = np.array(["measure" in path and "step" in path for path in profile.paths], dtype=bool)
    ranges = profile.range_instances()
    ranges = ranges[is_in_step[ranges["path_id"]]].sort_values(["start_ns", "instance"])
    steps = ranges[ranges["name"] == "step"]
    numbers = pd.Series(np.arange(len(steps)), index=steps["instance"])  # in the order in which the steps began
    is_measured = profile.enclosing("measure") >= 0
    activities = profile.activities()[is_measured]
    step_of_activity = pd.Series(profile.enclosing("step")[is_measured], activities.index).map(numbers)
    step_of_range = np.searchsorted(steps["start_ns"].to_numpy(), ranges["start_ns"].to_numpy(), side="right") - 1

    def place(rows: pd.DataFrame, step: pd.Series | np.ndarray) -> pd.DataFrame:
        paths = rows["path_id"]
        return rows.assign(step=step, phase=phases[paths], range=inner[paths]).reset_index(drop=True)

    return place(activities, step_of_activity.fillna(-1).astype("int64")), place(ranges, step_of_range)


def sum_kernels(activities: pd.DataFrame) -> pd.DataFrame:
    """One row per step x phase x range x name of a kernel or memory operation."""
    grouped = activities.groupby(["step", "phase", "range", "name", "class"], sort=True, observed=True)["duration_ns"]
    table = grouped.agg(launches="count", total_ns="sum", mean_ns="mean", min_ns="min", max_ns="max").reset_index()
    require_same("launches", table["launches"].sum(), len(activities))
    require_same("nanoseconds", table["total_ns"].sum(), activities["duration_ns"].sum())
    return table.rename(columns={"name": "kernel"})


def sum_phases(activities: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """One row per step x phase, and one with the phase `step` per step: wall time, span, busy and summed GPU time."""
    rows = []
    steps, phases = activities["step"].to_numpy(), activities["phase"].to_numpy()
    kernel = ~activities["kind"].isin(MEMORY_OPERATIONS).to_numpy(dtype=bool)
    start_ns, end_ns = activities["start_ns"].to_numpy("int64"), activities["end_ns"].to_numpy("int64")
    # of a phase, its own range alone; the range of a step is in no phase
    ranges = ranges[ranges["range"] == ""]
    walls = (ranges["end_ns"] - ranges["start_ns"]).groupby([ranges["step"], ranges["phase"]], sort=False).sum()
    for step in sorted(set(ranges["step"])):
        wall_ns, is_in_step = walls[step].to_dict(), steps == step
        whole_ns = wall_ns.pop(OUTSIDE)
        # in the order in which they open; then OUTSIDE, which has activities, but no range
        for phase in ["step", *dict.fromkeys([*wall_ns, *sorted(set(phases[is_in_step]))])]:
            is_in = is_in_step if phase == "step" else is_in_step & (phases == phase)
            start, end, is_kernel = start_ns[is_in], end_ns[is_in], kernel[is_in]
            rows.append({
                "step": step, "phase": phase, "wall_ns": whole_ns if phase == "step" else wall_ns.get(phase, 0),
                "gpu_span_ns": end.max() - start.min() if len(end) else 0, "gpu_busy_ns": union(start, end).total_ns,
                "kernel_ns": (end - start)[is_kernel].sum(), "kernels": is_kernel.sum(),
                "memop_ns": (end - start)[~is_kernel].sum(), "memops": (~is_kernel).sum(),
            })  # fmt: skip
    table = pd.DataFrame(rows, columns=list(declared_columns("phases", keys=False)))
    is_step = table["phase"] == "step"
    for column in ("kernel_ns", "kernels", "memop_ns", "memops"):
        require_same(f"{column} of all phases", table.loc[~is_step, column].sum(), table.loc[is_step, column].sum())
    return table


def sum_ranges(activities: pd.DataFrame, ranges: pd.DataFrame) -> pd.DataFrame:
    """One row per step x phase x range: instances, wall time, and GPU time and launches, inner ranges included."""
    keys, ranges = ["step", "phase", "range"], ranges[ranges["phase"] != OUTSIDE]
    walls = ranges.assign(wall_ns=ranges["end_ns"] - ranges["start_ns"]).groupby(keys)["wall_ns"]
    work = activities[activities["step"] >= 0]
    is_kernel = ~work["kind"].isin(MEMORY_OPERATIONS)
    parts = {"gpu_time_ns": is_kernel, "kernels": is_kernel, "memop_time_ns": ~is_kernel, "memops": ~is_kernel}
    terms = {name: part * (work["duration_ns"] if "time" in name else 1) for name, part in parts.items()}
    sums = work.assign(**terms).groupby(keys)[list(terms)].sum().reset_index()
    outer = [[path_text(names[:length]) for length in range(len(names) + 1)] for names in map(names_in, sums["range"])]
    sums = sums.assign(range=outer).explode("range").groupby(keys).sum()
    # an outer join: ranges may have no activities, and activities outside of all phases have no range
    return walls.agg(instances="count", wall_ns="sum").join(sums, how="outer").fillna(0).astype("int64").reset_index()


def check_tensor_cores(kernels: pd.DataFrame, precision: str) -> list[str]:
    """A warning if products in fp32 ran on tensor cores; the diagnosis says if none did in another precision."""
    matmuls = kernels[kernels["class"].map(family) == "gemm"]
    on_tensor_cores = matmuls["kernel"].str.contains(ON_TENSOR_CORES, case=False, regex=True)
    if precision != "fp32" or not on_tensor_cores.any():
        return []
    share = matmuls.loc[on_tensor_cores, "total_ns"].sum() / matmuls["total_ns"].sum()
    return [f"precision is fp32, and {100 * share:.0f} % of the matrix multiplies' time is on tensor cores"]


def require_same(quantity: str, actual: int, expected: int) -> None:
    """Raises NotConserved unless the two integers are equal."""
    if int(actual) != int(expected):
        raise NotConserved(f"{quantity}: {int(actual)} in the table, {int(expected)} in the capture: a defect")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), *map(json.loads, sys.argv[2:]))
    except (TraceError, BadResult) as error:
        sys.exit(str(error))
