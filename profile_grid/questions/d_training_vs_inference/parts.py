"""The parts of the model in training: what each takes in the forward pass, and what differentiates it."""

from __future__ import annotations

import pandas as pd

from kernel_tables.marking import JOINT
from profile_grid.tables.conservation import check_shares, require_same
from profile_grid.tables.names import BACKWARD, FORWARD, LOSS, NO_RANGE, RECOMPUTATION
from profile_grid.tables.per_pass import Merged, in_run_order, per_pass, with_share
from profile_grid.tables.range_paths import names_in

PHASES = (FORWARD, LOSS, BACKWARD)
PLACE = ["run", "phase", "range"]


def training_parts(merged: Merged) -> pd.DataFrame:
    """(d) GPU time by part of the model and pass: forward (loss included), backward, and what is computed again in it.

    No rows for captures without ranges around what differentiates a part. The times of a run are those of its phases,
    to the nanosecond."""
    kernels = merged.kernels[merged.kernels["phase"].isin(PHASES)]
    places = _with_parts(kernels[PLACE].drop_duplicates())
    tells = places.loc[(places["pass"] == BACKWARD) & (places["part"] != NO_RANGE), "run"].unique()
    rows = kernels[kernels["run"].isin(tells)].merge(places, on=PLACE, how="left", validate="many_to_one")
    table = with_share(per_pass(rows, ["pass", "part"], merged.captured_steps), ["run", "pass"], "share")
    phases = merged["phases"]
    own = phases[phases["run"].isin(tells) & phases["phase"].isin(PHASES) & (phases["step"] >= 0)]
    require_same("GPU time by part", table["total_ns"].sum(), own[["kernel_ns", "memop_ns"]].to_numpy().sum())
    check_shares(table, ["run", "pass"])
    return in_run_order(table, kernels, []).drop(columns=["total_ns", "same_in_every_step"])


def _with_parts(places: pd.DataFrame) -> pd.DataFrame:
    """The distinct places of kernels, with the pass and the part of the model that each belongs to."""
    of_forward: dict[str, set[str]] = {}  # by run the names of ranges in its forward pass
    for run, phase, path in places.itertuples(index=False, name=None):
        forward = names_in(path) if phase != BACKWARD else []
        of_forward.setdefault(run, {LOSS}).update(part for name in forward for part in name.split(JOINT))
    told = [
        _pass_and_part(phase, names_in(path), of_forward[run])
        for run, phase, path in places.itertuples(index=False, name=None)
    ]
    return places.assign(**{"pass": [one for one, _ in told], "part": [part for _, part in told]})


def _pass_and_part(phase: str, names: list[str], parts: set[str]) -> tuple[str, str]:
    """The part is the innermost range; in the backward pass the innermost that the forward pass has too, since
    libraries open ranges of their own inside. Of a compiled kernel it is a set of parts."""
    if phase != BACKWARD:
        return FORWARD, names[-1] if names else LOSS if phase == LOSS else NO_RANGE
    part = next((name for name in reversed(names) if parts.issuperset(name.split(JOINT))), NO_RANGE)
    return RECOMPUTATION if RECOMPUTATION in names else BACKWARD, part
