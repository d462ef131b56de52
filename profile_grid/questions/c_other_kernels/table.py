"""The tables of (c): the forward pass by kernel class and by part of the model."""

import pandas as pd

from kernel_tables.attribution.path_text import innermost
from profile_grid.study.table_spec import PER_PASS, PageTable, TableSpec, columns
from profile_grid.tables import class_tables, classes, names, texts
from profile_grid.tables.per_pass import Merged, as_floats, in_run_order, per_pass, total_by_run, with_share


def forward_parts(merged: Merged) -> pd.DataFrame:
    """(c) GPU time of the forward pass by part of the model (innermost range), matrix multiplies and others
    separately."""
    kernels, steps = merged.kernels, merged.captured_steps
    forward = kernels[kernels["phase"] == names.FORWARD]
    forward = forward.assign(part=forward["range"].map(lambda path: innermost(path) or names.NO_RANGE))
    others = forward[~classes.is_matmul(forward["class"]).astype("bool")]
    table = with_share(per_pass(forward, ["part"], steps), ["run"])
    other_ns = texts.as_texts(others).groupby(["run", "part"], as_index=False)["total_ns"].sum()
    other_ns = as_floats(table[["run", "part"]].merge(other_ns, on=["run", "part"], how="left")["total_ns"]).fillna(0.0)
    table["other_time_ms"] = other_ns / as_floats(table["run"].map(steps)) / 1e6
    table["other_share"] = other_ns / as_floats(table["run"].map(total_by_run(forward)))
    table["share_of_others"] = other_ns / as_floats(table["run"].map(total_by_run(others)))
    return in_run_order(table, kernels, by=[]).drop(columns=["total_ns", "same_in_every_step"])


TABLES = (
    class_tables.FORWARD_CLASSES,
    TableSpec(
        "forward_parts",
        "(c) One row per run and part of the model in the forward pass",
        columns(
            "part | text | | innermost range that was open at the launch",
            PER_PASS,
            """
    share | float | of 1 | of the forward pass's GPU time; sums to one
    other_time_ms | float | ms | gpu_time_ms without matrix multiplies
    other_share | float | of 1 | other_time_ms, of the forward pass's GPU time
    share_of_others | float | of 1 | of the forward pass's GPU time outside matrix multiplies; sums to one
""",
        ),
        make=forward_parts,
    ),
    class_tables.TOP_KERNELS,
)
PAGE_TABLES = (
    PageTable("forward_classes", "Classes in the forward pass"),
    PageTable("forward_parts", "Parts of the model in the forward pass"),
    PageTable(
        "other_kernels",
        "The kernels with the most time besides matrix multiplies",
        select=lambda top: top[top["scope"] == names.FORWARD_OTHERS].drop(columns=["scope", "same_as_forward"]),
        source_name="top_kernels",
    ),
)
