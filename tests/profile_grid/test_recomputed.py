"""Numbers in answers of the example, recomputed from its merged tables by plain pandas, without the project's code."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-h200"
SENTENCES = pd.read_csv(EXAMPLE / "sentences.csv", keep_default_na=False)
RUN = ["model", "context_length", "precision", "batch_size"]
FP32, BF16 = 67e12, 989.4e12  # FLOP/s in the data sheet of the H200


def table(study: str, name: str) -> pd.DataFrame:
    return pd.read_parquet(EXAMPLE / study / "tables" / f"{name}.parquet")


def lead(study: str, question: str) -> str:
    rows = SENTENCES[(SENTENCES["study"] == study) & (SENTENCES["question"] == question) & (SENTENCES["place"] == 0)]
    return rows["sentence"].item()


@pytest.fixture(scope="module")
def kernels() -> pd.DataFrame:
    """The kernels of measured steps of the study cs336-2026, with the innermost range, and whether they are matrix
    multiplies."""
    rows = table("cs336-2026", "kernels")
    rows = rows[rows["step"] >= 0]
    return rows.assign(part=rows["range"].str.split(" > ").str[-1], gemm=rows["class"].str.startswith("gemm"))


@pytest.fixture(scope="module")
def forward(kernels) -> pd.DataFrame:
    return kernels[(kernels["mode"] == "forward") & (kernels["phase"] == "forward")]


def longest(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Per run the value of the column with the longest time, and that time."""
    sums = rows.groupby(["run", column])["total_ns"].sum().reset_index().sort_values("total_ns")
    return sums.groupby("run").tail(1).set_index("run").sort_index()


def percents(*shares: float) -> list[str]:
    return [f"{100 * share:.1f} %" for share in shares]


def test_forward_passes_of_the_course_take_these_times_with_and_without_a_profiler():
    timings, phases = table("cs336-2026", "timings"), table("cs336-2026", "phases")
    steps = timings[(timings["mode"] == "forward") & (timings["phase"] == "step")].set_index("run")["mean_ms"].dropna()
    profiled = phases[phases["phase"] == "step"].groupby("run")["wall_ns"].mean().reindex(steps.index) / 1e6
    matching = ((profiled / steps - 1).abs() <= 0.05).sum()
    text = lead("cs336-2026", "a_forward_time")
    assert f"{steps.min():.1f} to {steps.max():.0f} ms (median {steps.median():.1f} ms)" in text
    assert f"{matching} of {len(steps)} runs" in text


def test_matrix_multiplies_lead_these_runs_and_leave_this_share_to_other_kernels(forward):
    total, top = forward.groupby("run")["total_ns"].sum(), longest(forward, "kernel")
    is_gemm = forward.drop_duplicates("kernel").set_index("kernel")["gemm"]
    share = top["total_ns"] / total
    text = lead("cs336-2026", "b_top_kernels")
    assert f"forward pass, gemm in {top['kernel'].map(is_gemm).sum()} of {len(top)} runs" in text
    assert "takes {} to {} of it (median {})".format(*percents(share.min(), share.max(), share.median())) in text
    others = forward[~forward["gemm"]]
    left = others.groupby("run")["total_ns"].sum() / total
    parts = longest(others[others["part"] != ""], "part")["part"].value_counts()
    text = lead("cs336-2026", "c_other_kernels")
    assert "{} to {} of the forward pass (median {})".format(*percents(left.min(), left.max(), left.median())) in text
    assert f"most of it in `{parts.index[0]}` in {parts.iloc[0]} of {len(left)} runs" in text


def test_training_has_this_share_of_matrix_multiplies_and_these_leaders(kernels, forward):
    step = kernels[kernels["mode"] == "train_step"]
    both = []
    for rows in (forward, step):
        shares = rows[rows["gemm"]].groupby("run")["total_ns"].sum() / rows.groupby("run")["total_ns"].sum()
        runs = rows.drop_duplicates("run").set_index("run")[RUN]
        both.append(runs.assign(share=100 * shares, leader=longest(rows, "kernel")["kernel"]))
    pairs = both[0].merge(both[1], on=RUN, suffixes=("", "_training"))
    change = pairs["share_training"] - pairs["share"]
    text = lead("cs336-2026", "d_training_vs_inference")
    assert (
        (change < 0).all()
        and f"a smaller share than in inference in all {len(change)} runs ({-change.max():.1f} to {-change.min():.1f}"
        in text
    )
    assert f"median change −{-change.median():.1f}." in text
    same = (pairs["leader"] == pairs["leader_training"]).sum()
    assert lead("cs336-2026", "b_top_kernels").endswith(f"leads training in {same} of {len(pairs)} runs.")


def test_softmax_takes_this_multiple_of_the_matrix_multiplies_of_attention(forward):
    times = forward.groupby(["run", "part"])["total_ns"].sum().unstack()
    ratio = times["computing softmax"] / (times["computing attention scores"] + times["final matmul"])
    text = lead("cs336-2026", "e_attention")
    assert f"takes {ratio.min():.3f} to {ratio.max():.2f} times" in text and f"(median {ratio.median():.2f})" in text


def test_bf16_and_memory_of_the_course_are_these():
    steps = table("cs336-2026", "timings").query("phase == 'step' and mean_ms.notna()")
    keys = ["model", "context_length", "mode", "batch_size"]
    pairs = steps.query("precision == 'fp32'").merge(steps.query("precision == 'bf16'"), on=keys)
    gain = pairs["mean_ms_x"] / pairs["mean_ms_y"]
    run = gain[
        (pairs["model"] == "xl-2026") & (pairs["context_length"] == 128) & (pairs["mode"] == "train_step")
    ].item()
    text = lead("cs336-2026", "f_precision")
    assert f"is {run:.2f} times as fast" in text and f"median of {len(gain)} runs is × {gain.median():.2f}" in text
    rows = table("cs336-2026", "memory_phases").query("phase == 'step'")
    rows = rows[rows["step"] == rows.groupby("run")["step"].transform("max")]
    peak = rows.groupby("run")["bytes"].sum()
    largest = rows[rows["run"] == peak.idxmax()].set_index("category")["bytes"]
    text = lead("cs336-2026", "i_memory")
    assert f"needs {peak.max() / 2**30:.1f} GiB" in text and f"{100 * largest.max() / peak.max():.1f} % of it" in text
    assert largest.idxmax() in text


def test_so_many_of_sixty_runs_lose_most_to_each_loss():
    findings = table("diagnosis", "findings")
    findings = findings[~findings["abstained"].astype(bool)].astype({"run": "str", "code": "str"})
    timings, phases = table("diagnosis", "timings"), table("diagnosis", "phases")
    step_ms = timings[timings["phase"] == "step"].set_index("run")["mean_ms"]
    busy_ms = phases[phases["phase"] == "step"].groupby("run")["gpu_busy_ns"].mean() / 1e6
    idle = findings["code"].isin({"launch_bound", "idle_host", "idle_sync", "idle_copy", "idle_allocation"})
    room_ms = (findings["run"].map(step_ms) - findings["run"].map(busy_ms)).clip(lower=0)
    saved = np.where(findings["code"] == "no_tensor_cores", 1 - FP32 / BF16, 1.0)
    gain_ms = np.where(idle, np.minimum(findings["gain_ms"], room_ms), findings["gain_ms"] * saved)
    largest = findings.assign(gain_ms=gain_ms).sort_values("gain_ms").groupby("run").tail(1)
    counts = largest["code"].value_counts()
    bound = (largest["gain_ms"] / largest["run"].map(step_ms)).median()
    expected = (
        f"in {counts['no_tensor_cores']} of {len(largest)} runs and late launches in {counts['launch_bound']}"
        f": at most {100 * bound:.1f} % of a step (median)"
    )
    assert expected in lead("diagnosis", "time_lost")
    assert expected in lead("example-h200", "time_lost")


def test_so_many_cells_of_the_sweep_are_faster_beyond_the_assumed_spread():
    cells = table("attention-sweep", "attention_sweep").query("status == 'complete'")
    cells = cells.assign(ms=cells["forward_ms"] + cells["backward_ms"])
    keys = ["head_dim", "context_length", "precision", "batch_size"]
    pairs = cells[cells["variant"] != "eager"].merge(cells[cells["variant"] == "eager"], on=keys)
    z = np.log(pairs["ms_y"] / pairs["ms_x"]) / (0.15 * 2**0.5)
    faster = (stats.false_discovery_control(2 * stats.norm.sf(z.abs())) < 0.05) & (z > 0)
    assert f"{faster.sum()} of {len(pairs)} cells are faster" in lead("attention-sweep", "attention_sweep")


def test_the_overview_counts_the_remedies_of_all_studies():
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    held = SENTENCES[SENTENCES["sentence"].str.contains("measured remedies")]
    numbers = [json.loads(text) for text in held["numbers"]]
    kept, every = (sum(int(each[name]) for each in numbers) for name in ("held", "all"))
    assert f"{kept} of {every} remedies that {len(numbers)} studies measured" in readme
