"""The table of (m): the energy of a step and a token by run, and how much of it is idle power."""

import pandas as pd

from profile_grid.stages.energy.tables import ENERGY_TABLE, QUANTITY_COLUMNS
from profile_grid.study import dimensions, table_spec
from profile_grid.tables.evidence import LAUNCH_BOUND_SHARE
from profile_grid.tables.per_pass import Merged, as_floats

LAUNCH_BOUND_RULE = "launch_bound"  # of the diagnosis
ENERGY_COLUMNS = ["counter", "step_ms", *QUANTITY_COLUMNS, "tick_ms", "tick_share"]


def energy_use(merged: Merged) -> pd.DataFrame:
    """(m) One row per run with counted energy: the energy of a step and a token, the share of it that idle power would
    take in the same time, and the share that idle power takes while the GPU waits."""
    table = merged["energy"][[*dimensions.LEADING, *ENERGY_COLUMNS]]
    busy_ms = as_floats(table["run"].map(merged.busy_ms))
    waiting_share = (1 - busy_ms / as_floats(table["step_ms"])).clip(lower=0)
    idle_share = (as_floats(table["idle_power_w"]) / as_floats(table["power_w"])).clip(upper=1)
    return table.assign(
        busy_ms=busy_ms,
        waiting_share=waiting_share,
        idle_share=idle_share,
        waiting_energy_share=waiting_share * idle_share,
        launch_bound=table["run"].isin(_runs_found_launch_bound(merged)) & (waiting_share >= LAUNCH_BOUND_SHARE),
    ).reset_index(drop=True)


def _runs_found_launch_bound(merged: Merged) -> pd.Series:
    """The runs of which the diagnosis finds LAUNCH_BOUND_RULE. It is of steps under the profiler."""
    findings = merged["findings"]
    return findings.loc[(findings["code"] == LAUNCH_BOUND_RULE) & ~findings["abstained"].astype("bool"), "run"]


TABLES = (
    table_spec.TableSpec(
        "energy_use",
        "(m) One row per run whose energy was counted",
        table_spec.columns(
            ENERGY_TABLE.as_in(*ENERGY_COLUMNS),
            """
    busy_ms | float | ms | time of a captured step in which anything ran on the GPU, the mean; empty on a CPU
    waiting_share | float | of 1 | part of step_ms that is not busy_ms
    idle_share | float | of 1 | idle_power_w ÷ power_w: the share of the energy that idle power would take
    waiting_energy_share | float | of 1 | waiting_share × idle_share: what idle power takes of the energy while the \
        GPU waits
    launch_bound | bool | | whether the diagnosis finds the run launch-bound, and the GPU waits for as much of a step \
        without a profiler
""",
        ),
        make=energy_use,
    ),
)
PAGE_TABLES = (table_spec.PageTable("energy_use", "Energy of a step and a token"),)
