"""The tables behind the five answers, computed from the merged tables.

Integer nanoseconds end here: what comes out is in the unit that its column names. "GPU time" is the sum of the
durations of kernels and memory operations (on a CPU: of outermost operators). "Per pass" is the mean over the
measured steps, a step without the kernel counting as zero.
"""

from __future__ import annotations

import pandas as pd

from profile_grid.errors import OutsideError

RUN_KEYS = ["run", "model", "context_length", "mode"]
WHOLE_STEP = "step"
ALL_PHASES = "all phases"
FORWARD = "forward"
FORWARD_OTHERS = "forward without matrix multiplies"
OUTSIDE = "(outside)"
NO_RANGE = "(no inner range)"
MATMUL = "gemm"
MEMORY_OPERATIONS = ("memcpy", "memset")
KERNELS_KEPT = 5
MATCH_TOLERANCE = 0.05


class ConservationError(OutsideError):
    """Two tables of one run disagree on what should be the same time; the message is one line."""


def summary_tables(merged: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables of the five answers by name, from the merged tables runs, timings, kernels, phases and ranges.

    Raises ConservationError where the kernels of a phase do not add up to that phase, or phases to their step.
    """
    from profile_grid.tables.attention import attention

    kernels, steps = merged["kernels"], captured_steps(merged["phases"])
    kernels = kernels[kernels["step"] >= 0]  # what the window holds before and after its steps is no one's pass
    check_conservation(kernels, merged["phases"])
    return {
        "forward_time": forward_time(merged["runs"], merged["timings"], merged["phases"]),
        "top_kernels": top_kernels(kernels, steps),
        "forward_classes": forward_classes(kernels, steps),
        "forward_parts": forward_parts(kernels, steps),
        "class_shares": class_shares(kernels, steps),
        "attention": attention(merged["runs"], kernels, merged["ranges"], steps),
    }


def captured_steps(phases: pd.DataFrame) -> pd.Series:
    """How many measured steps the capture of each run holds, by run."""
    return phases[phases["phase"] == WHOLE_STEP].groupby("run", sort=False)["step"].nunique()


def per_pass(rows: pd.DataFrame, by: list[str], steps: pd.Series) -> pd.DataFrame:
    """One row per run and `by`: total_ns over all steps, gpu_time_ms and its spread per step, invocations per step,
    and whether every measured step had the same number of them."""
    keys = [*RUN_KEYS, *by]
    per_step = rows.groupby([*keys, "step"], sort=False)[["total_ns", "launches"]].sum().reset_index()
    groups = per_step.groupby(keys, sort=False)
    table = groups.agg(
        total_ns=("total_ns", "sum"), launches=("launches", "sum"), steps=("step", "size"),
        fewest=("launches", "min"), most=("launches", "max"),
    ).reset_index()  # fmt: skip
    captured = numbers(table["run"].map(steps))
    mean_ns = numbers(table["total_ns"]) / captured
    deviation = per_step["total_ns"] - mean_ns.to_numpy()[groups.ngroup()]
    squares = (deviation**2).groupby(groups.ngroup()).sum().to_numpy() + (captured - table["steps"]) * mean_ns**2
    table["gpu_time_ms"] = mean_ns / 1e6
    table["gpu_time_std_ms"] = (squares / (captured - 1).where(captured > 1)) ** 0.5 / 1e6
    table["invocations"] = numbers(table["launches"]) / captured
    table["same_in_every_step"] = (table["fewest"] == table["most"]) & (table["steps"] == captured)
    return table.drop(columns=["launches", "steps", "fewest", "most"])


def forward_time(runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame) -> pd.DataFrame:
    """(a) One row per run: the forward pass as NVTX, the GPU and Python's timer see it, and what profiling costs."""
    forward, step = _phase_statistics(phases, FORWARD), _phase_statistics(phases, WHOLE_STEP)
    unprofiled = timings[timings["phase"] == WHOLE_STEP].set_index("run")
    table = runs[[*RUN_KEYS, "timing_status", "capture_status", "backend"]].copy()

    def column(source: pd.DataFrame, name: str) -> pd.Series:
        return numbers(table["run"].map(source[name]))

    for name in ("wall", "gpu_span", "gpu_busy"):
        table[f"forward_{name}_ms"] = column(forward, f"{name}_ms")
        table[f"forward_{name}_std_ms"] = column(forward, f"{name}_std_ms")
    table["step_wall_ms"], table["step_wall_std_ms"] = column(step, "wall_ms"), column(step, "wall_std_ms")
    table["unprofiled_step_ms"], table["unprofiled_step_std_ms"] = (
        column(unprofiled, "mean_ms"), column(unprofiled, "std_ms"),
    )  # fmt: skip
    table["steps_timed"], table["steps_captured"] = column(unprofiled, "n"), column(step, "steps")
    table["forward_kernels"] = column(forward, "kernels")
    table["mean_kernel_us"] = column(forward, "kernel_ms") * 1e3 / table["forward_kernels"]
    table["idle_share"] = 1 - column(step, "gpu_busy_ms") / table["step_wall_ms"]
    return _with_overhead(table)


def top_kernels(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(b, c) The kernels with the most GPU time per run and scope, by rank; `same_as_forward` compares the top kernel
    of all phases with that of the model's inference run, or of its own forward pass where there was no such run."""
    forward = kernels[kernels["phase"] == FORWARD]
    scopes = {FORWARD: forward, FORWARD_OTHERS: forward[~is_matmul(forward["class"])], ALL_PHASES: kernels}
    whole = {FORWARD: _total(forward), FORWARD_OTHERS: _total(forward), ALL_PHASES: _total(kernels)}
    tables = []
    for scope, rows in scopes.items():
        table = per_pass(rows, ["kernel", "class"], steps)
        table.insert(4, "scope", scope)
        table["share"] = table["total_ns"] / numbers(table["run"].map(whole[scope]))
        tables.append(table)
    table = pd.concat(tables, ignore_index=True)
    table = table.sort_values(["total_ns", "kernel"], ascending=[False, True], kind="stable")
    table.insert(5, "rank", table.groupby(["run", "scope"]).cumcount() + 1)
    table = _in_run_order(table[table["rank"] <= KERNELS_KEPT], kernels, ["scope", "rank"]).drop(columns="total_ns")
    return _with_same_as_forward(table)


def forward_classes(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(c) GPU time of the forward pass by kernel class, with its share of the forward pass's GPU time."""
    table = per_pass(kernels[kernels["phase"] == FORWARD], ["class"], steps)
    return _with_share(table, ["run"], "share").pipe(_in_run_order, kernels, []).drop(columns="total_ns")


def forward_parts(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(c) GPU time of the forward pass by part of the model (innermost range), matrix multiplies and others apart."""
    forward = kernels[kernels["phase"] == FORWARD]
    forward = forward.assign(
        part=forward["range"].fillna("").str.split(" > ").str[-1].replace("", NO_RANGE),
        other_ns=forward["total_ns"].where(~is_matmul(forward["class"]), 0),
    )
    table = _with_share(per_pass(forward, ["part"], steps), ["run"], "share")
    others = forward.groupby(["run", "part"])["other_ns"].sum()
    other_ns = pd.MultiIndex.from_frame(table[["run", "part"]]).map(others).to_numpy(dtype="float64")
    table["other_time_ms"] = other_ns / numbers(table["run"].map(steps)) / 1e6
    table["other_share"] = other_ns / numbers(table["run"].map(_total(forward)))
    all_others = numbers(table["run"].map(forward.groupby("run")["other_ns"].sum()))
    table["share_of_others"] = other_ns / all_others.where(all_others > 0)
    return _in_run_order(table, kernels, []).drop(columns=["total_ns", "same_in_every_step"])


def class_shares(kernels: pd.DataFrame, steps: pd.Series) -> pd.DataFrame:
    """(d) GPU time by phase and kernel class; `share` is of the phase and sums to one, `share_of_step` of the step."""
    whole = per_pass(kernels, ["class"], steps)
    whole.insert(4, "phase", ALL_PHASES)
    table = pd.concat([whole, per_pass(kernels, ["phase", "class"], steps)], ignore_index=True)
    table = _with_share(table, ["run", "phase"], "share")
    table["share_of_step"] = table["total_ns"] / numbers(table["run"].map(_total(kernels)))
    sums = table.groupby(["run", "phase"])["share"].sum()
    if not sums.empty and (sums - 1).abs().max() > 1e-9:
        run, phase = (sums - 1).abs().idxmax()
        raise ConservationError(f"{run}: class shares of {phase} sum to {sums[run, phase]!r} instead of 1")
    return _in_run_order(table, kernels, []).drop(columns=["total_ns", "same_in_every_step"])


def check_conservation(kernels: pd.DataFrame, phases: pd.DataFrame) -> None:
    """Raises ConservationError unless kernels add up to their phase and phases to their step, to the nanosecond."""
    keys = ["run", "step", "phase"]
    memory = kernels["class"].isin(MEMORY_OPERATIONS)
    listed = phases[phases["phase"] != WHOLE_STEP].set_index(keys)
    for column, rows in (("kernel_ns", kernels[~memory]), ("memop_ns", kernels[memory])):
        _require_equal(rows.groupby(keys)["total_ns"].sum(), listed[column], f"{column} of the phase")
        whole = phases[phases["phase"] == WHOLE_STEP].set_index(["run", "step"])[column]
        _require_equal(listed[column].groupby(["run", "step"]).sum(), whole, f"{column} of the step")


def numbers(column: pd.Series) -> pd.Series:
    """The column as floating-point numbers; a table without rows does not know that it would hold numbers."""
    return pd.to_numeric(column, errors="coerce").astype("float64")


def is_matmul(classes: pd.Series) -> pd.Series:
    """Which of these classes are matrix multiplies."""
    return classes.map(family) == MATMUL


def family(kernel_class: str) -> str:
    """The class without its refinement: "elementwise" for "elementwise/copy"."""
    return kernel_class.split("/")[0]


def _phase_statistics(phases: pd.DataFrame, phase: str) -> pd.DataFrame:
    """Mean and spread over the steps of one phase by run, in ms; what the GPU did is absent where it did nothing."""
    rows = phases[phases["phase"] == phase]
    silent = rows["run"].map(phases.groupby("run")["kernels"].sum()) == 0
    columns = {"wall_ns": "wall", "gpu_span_ns": "gpu_span", "gpu_busy_ns": "gpu_busy", "kernel_ns": "kernel"}
    statistics = {}
    for source, name in columns.items():
        values = numbers(rows[source]) / 1e6
        grouped = (values if source == "wall_ns" else values.mask(silent)).groupby(rows["run"])
        statistics |= {f"{name}_ms": grouped.mean(), f"{name}_std_ms": grouped.std()}
    kernels = numbers(rows["kernels"]).mask(silent).groupby(rows["run"]).mean()
    return pd.DataFrame({**statistics, "kernels": kernels, "steps": rows.groupby("run")["step"].nunique()})


def _with_overhead(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the ratio of the profiled to the unprofiled step, its spread, and whether the two match."""
    ratio = table["step_wall_ms"] / table["unprofiled_step_ms"]
    relative = (table["step_wall_std_ms"] / table["step_wall_ms"]) ** 2
    relative += (table["unprofiled_step_std_ms"] / table["unprofiled_step_ms"]) ** 2
    matches = ((ratio - 1).abs() <= MATCH_TOLERANCE).astype("boolean").mask(ratio.isna())
    return table.assign(overhead_ratio=ratio, overhead_ratio_std=ratio * relative**0.5, matches_python=matches)


def _with_same_as_forward(table: pd.DataFrame) -> pd.DataFrame:
    top = table[(table["rank"] == 1) & (table["scope"] == FORWARD)]
    inference = top[top["mode"] == FORWARD].set_index(["model", "context_length"])["kernel"]
    own = top.set_index("run")["kernel"]
    reference = [
        inference.get((row.model, row.context_length), own.get(row.run)) for row in table.itertuples(index=False)
    ]
    same = (table["kernel"] == pd.Series(reference, index=table.index, dtype="object")).astype("boolean")
    compared = (table["rank"] == 1) & (table["scope"] == ALL_PHASES) & pd.notna(pd.Series(reference, index=table.index))
    return table.assign(same_as_forward=same.where(compared))


def _with_share(table: pd.DataFrame, whole: list[str], name: str) -> pd.DataFrame:
    total = table.groupby(whole)["total_ns"].transform("sum")
    return table.assign(**{name: (table["total_ns"] / total.where(total > 0)).astype("float64")})


def _total(rows: pd.DataFrame) -> pd.Series:
    return rows.groupby("run")["total_ns"].sum()


def _in_run_order(table: pd.DataFrame, kernels: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """The rows in the order in which the merged table has the runs, then by `by`, else the longest first."""
    position = {run: i for i, run in enumerate(kernels["run"].unique())}
    keys = table.assign(_run=table["run"].map(position), _long=-table["gpu_time_ms"])
    phases = ["phase"] if "phase" in table.columns else []
    return table.loc[keys.sort_values(["_run", *phases, *(by or ["_long"])], kind="stable").index].reset_index(
        drop=True
    )


def _require_equal(found: pd.Series, expected: pd.Series, what: str) -> None:
    both = pd.concat([found.rename("found"), expected.rename("expected")], axis=1).fillna(0)
    wrong = both[both["found"] != both["expected"]]
    if not wrong.empty:
        where = ", ".join(str(part) for part in wrong.index[0])
        raise ConservationError(
            f"{where}: {what} is {int(wrong['expected'].iloc[0])} ns, its parts sum to"
            f" {int(wrong['found'].iloc[0])} ns;"
            " the tables come from different captures or a launch was lost: rebuild them from the capture"
        )
