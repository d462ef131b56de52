"""Where time is lost: from the findings of the captures of this grid to what each can save at most without a profiler.

Under a profiler the host takes longer, so the GPU idles longer. Without one, it idles for the time of a step less the
time in which the captured GPU was busy, which a profiler does not change. So a finding saves at most that idle time and
the GPU time of its own kernels. Operators of a processor take longer under a profiler, too: there it is the same share.
"""

import json

import numpy as np
import pandas as pd

from kernel_tables.diagnose import RULES_WITH_IDLE_TIME
from workflow.peaks import peak_flop_per_s
from workflow.tables import read_tables, sort_runs, write_tables


def main(inputs: list[str], outputs: list[str]) -> None:
    tables = read_tables(inputs)
    table = limit_gains(tables["findings"], tables["runs"], tables["timings"], tables["phases"])
    write_tables({"time_lost": table}, outputs)


def limit_gains(
    findings: pd.DataFrame, runs: pd.DataFrame, timings: pd.DataFrame, phases: pd.DataFrame
) -> pd.DataFrame:
    """The table `time_lost`: in each run the largest gain first, then the rules that lack data. Gains of a run that was
    not timed are those of the captured step."""
    step_ms = timings[timings["phase"] == "step"].set_index("run")["mean_ms"]
    captured_ms = phases[phases["phase"] == "step"].groupby("run")[["gpu_busy_ns", "wall_ns"]].mean() / 1e6
    busy_ms, wall_ms = captured_ms["gpu_busy_ns"], captured_ms["wall_ns"]
    step_ms = findings["run"].map(step_ms).astype("float64")
    idle_ms = (step_ms - findings["run"].map(busy_ms).astype("float64")).clip(lower=0.0)
    # the part of a gain in which the finding's own kernels or copies run
    facts = findings["evidence"].map(json.loads, na_action="ignore")
    own_ms = facts.map(lambda one: one.get("running_ms", one.get("copying_alone_ms")), na_action="ignore")
    own_ms = own_ms.astype("float64").fillna(0.0)
    uses_idle = findings["code"].isin(RULES_WITH_IDLE_TIME)
    limit_ms = np.minimum((own_ms + idle_ms).where(uses_idle, findings["gain_ms"]), step_ms)
    on_cpu = findings["run"].map(runs.set_index("run")["device"]) == "cpu"
    limit_ms = limit_ms.mask(on_cpu, findings["gain_percent"] / 100 * step_ms)
    names = findings["run"].map(runs.set_index("run")["device_name"])
    saved = names.map(lambda name: 1 - peak_flop_per_s(name, "fp32") / peak_flop_per_s(name, "bf16"))
    saved = saved.astype("float64").where(findings["code"] == "no_tensor_cores").fillna(1.0)
    gain_ms = (findings["gain_ms"] * saved).clip(upper=limit_ms.fillna(np.inf))
    percent = (100 * gain_ms / step_ms).fillna(findings["gain_percent"] * saved)
    table = findings.assign(
        gain_ms=gain_ms, gain_percent=percent, profiled_step_ms=findings["run"].map(wall_ms).astype("float64")
    )
    return sort_runs(table.sort_values(["abstained", "gain_ms"], ascending=[True, False], kind="stable"), runs)


if "snakemake" in globals():
    main(list(snakemake.input.tables), list(snakemake.output))
