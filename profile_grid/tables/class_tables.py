"""Tables that several questions read, with the letters of these questions: the kernels with the most GPU time of each
run (b, c), and GPU time by kernel class (c, d, e)."""

import pandas as pd

from profile_grid.study.dimensions import LEADING, MODE, keys_without
from profile_grid.study.table_spec import PER_PASS, SAME_IN_EVERY_STEP, TableSpec, columns
from profile_grid.tables import classes, conservation
from profile_grid.tables.names import ALL_PHASES, FORWARD, FORWARD_OTHERS
from profile_grid.tables.per_pass import Merged, as_floats, in_run_order, per_pass, total_by_run, with_share

MAX_RANK = 5


def top_kernels(merged: Merged) -> pd.DataFrame:
    """(b, c) The kernels with the most GPU time per run and scope, by rank; `same_as_forward` compares the top kernel
    of all phases with that of the configuration's inference run or, without one, of the same run's forward pass."""
    kernels = merged.kernels
    forward = kernels[kernels["phase"] == FORWARD]
    not_matmul = forward[~classes.is_matmul(forward["class"])]
    kernels_by_scope = {FORWARD: forward, FORWARD_OTHERS: not_matmul, ALL_PHASES: kernels}
    tables = []
    for scope, scope_kernels in kernels_by_scope.items():
        table = per_pass(scope_kernels, ["kernel", "class"], merged.captured_steps)
        table.insert(len(LEADING), "scope", scope)
        total_ns = total_by_run(kernels if scope == ALL_PHASES else forward)
        table["share"] = table["total_ns"] / as_floats(table["run"].map(total_ns))
        tables.append(table)
    ranked = pd.concat(tables, ignore_index=True)
    ranked = ranked.sort_values(["total_ns", "kernel"], ascending=[False, True], kind="stable")
    ranked.insert(len(LEADING) + 1, "rank", ranked.groupby(["run", "scope"]).cumcount() + 1)
    top = in_run_order(ranked[ranked["rank"] <= MAX_RANK], kernels, ["scope", "rank"])
    return _with_same_as_forward(top.drop(columns="total_ns"))


def _with_same_as_forward(table: pd.DataFrame) -> pd.DataFrame:
    of_forward = table[(table["rank"] == 1) & (table["scope"] == FORWARD)]
    keys = keys_without(MODE.key)
    inference = of_forward.loc[of_forward["mode"] == FORWARD, [*keys, "kernel"]]
    of_inference = table[keys].merge(inference, on=keys, how="left", validate="many_to_one")["kernel"]
    reference = of_inference.fillna(table["run"].map(of_forward.set_index("run")["kernel"]))
    is_same = (table["kernel"] == reference).astype("boolean")
    is_compared = (table["rank"] == 1) & (table["scope"] == ALL_PHASES) & reference.notna()
    return table.assign(same_as_forward=is_same.where(is_compared))


TOP_KERNELS = TableSpec(
    "top_kernels",
    "(b, c) One row per run, scope and rank: the kernels with the most GPU time",
    columns(
        """
    scope | text | | forward; forward without matrix multiplies; all phases
    rank | int | | 1 is the kernel with the most GPU time in the scope
    kernel | text | | full name
    class | text | | kind of work
""",
        PER_PASS,
        SAME_IN_EVERY_STEP,
        """
    share | float | of 1 | of the GPU time of the forward pass or of all phases
    same_as_forward | bool | | rank 1 of all phases: whether it is also the top kernel of the \
        configuration's inference run or, without one, of this run's forward pass
""",
    ),
    make=top_kernels,
)


def forward_classes(merged: Merged) -> pd.DataFrame:
    """(c) GPU time of the forward pass by kernel class, with its share of the forward pass's GPU time."""
    kernels = merged.kernels
    table = per_pass(kernels[kernels["phase"] == FORWARD], ["class"], merged.captured_steps)
    return in_run_order(with_share(table, ["run"]), kernels, by=[]).drop(columns="total_ns")


def class_shares(merged: Merged) -> pd.DataFrame:
    """(d) GPU time by phase and kernel class; `share` is of the phase and sums to one, `share_of_step` of the step."""
    kernels, step_counts = merged.kernels, merged.captured_steps
    all_phases = per_pass(kernels, ["class"], step_counts)
    all_phases.insert(len(LEADING), "phase", ALL_PHASES)
    table = pd.concat([all_phases, per_pass(kernels, ["phase", "class"], step_counts)], ignore_index=True)
    table = with_share(table, ["run", "phase"])
    table["share_of_step"] = table["total_ns"] / as_floats(table["run"].map(total_by_run(kernels)))
    conservation.check_shares(table, ["run", "phase"])
    return in_run_order(table, kernels, by=[]).drop(columns=["total_ns", "same_in_every_step"])


FORWARD_CLASSES = TableSpec(
    "forward_classes",
    "(c) One row per run and kernel class of the forward pass",
    columns(
        "class | text | | kind of work",
        PER_PASS,
        SAME_IN_EVERY_STEP,
        "share | float | of 1 | of the forward pass's GPU time; sums to one",
    ),
    make=forward_classes,
)
CLASS_SHARES = TableSpec(
    "class_shares",
    "(d) One row per run, phase and kernel class",
    columns(
        """
    phase | text | | a phase, or all phases
    class | text | | kind of work
""",
        PER_PASS,
        """
    share | float | of 1 | of the phase's GPU time; sums to one
    share_of_step | float | of 1 | of the GPU time of all phases
""",
    ),
    make=class_shares,
)
