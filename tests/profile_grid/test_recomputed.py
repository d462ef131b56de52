"""Numbers in answers of the example, recomputed from its merged tables by plain pandas; without the code of the
project, but for remedies of studies whose documents have no sentence on them."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from docs.examples import STUDIES

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-h200"
SENTENCES = pd.read_csv(EXAMPLE / "sentences.csv", keep_default_na=False)
RUN = ["model", "context_length", "precision", "batch_size"]
FP32, BF16 = 67e12, 989.4e12  # FLOP/s in the data sheet of the H200


def table(study: str, name: str) -> pd.DataFrame:
    return pd.read_parquet(EXAMPLE / study / "tables" / f"{name}.parquet")


def lead(study: str, question: str) -> str:
    return sentence(study, question, 0)


def sentence(study: str, question: str, place: int) -> str:
    of_question = SENTENCES[(SENTENCES["study"] == study) & (SENTENCES["question"] == question)]
    return of_question.loc[of_question["place"] == place, "sentence"].item()


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
    assert f": gemm in {top['kernel'].map(is_gemm).sum()} of {len(top)} runs; the same kernel leads" in text
    assert (
        "takes {} to {} of the forward pass (median {})".format(*percents(share.min(), share.max(), share.median()))
        in text
    )
    others = forward[~forward["gemm"]]
    left = others.groupby("run")["total_ns"].sum() / total
    parts = longest(others[others["part"] != ""], "part")["part"].value_counts()
    text = lead("cs336-2026", "c_other_kernels")
    assert "{} to {} of the forward pass (median {})".format(*percents(left.min(), left.max(), left.median())) in text
    assert f"its longest part is `{parts.index[0]}` in {parts.iloc[0]} of {len(left)} runs" in text


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
    assert f"median change −{-change.median():.1f} points." in text
    same = (pairs["leader"] == pairs["leader_training"]).sum()
    assert lead("cs336-2026", "b_top_kernels").endswith(
        f"; the same kernel leads training in {same} of {len(pairs)} runs."
    )


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
    assert f"is {run:.2f} times as fast" in text
    assert (
        f"; all {len(gain)} speed-ups: × {gain.min():.2f} to × {gain.max():.2f} (median × {gain.median():.2f})" in text
    )
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
    bounds = largest["gain_ms"] / largest["run"].map(step_ms)
    least, most = percents(bounds.min(), bounds.max())
    expected = (
        f"costs at most {least} to {most} of a step: fp32 matrix multiplies without tensor cores in"
        f" {counts['no_tensor_cores']} of {len(largest)} runs and late launches in {counts['launch_bound']}"
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
    said = SENTENCES[(SENTENCES["study"] == "attention-sweep") & (SENTENCES["place"] == 1)]["sentence"].item()
    assert f"{faster.sum()} of {len(pairs)} combinations" in said


def test_the_overview_counts_the_remedies_of_all_studies():
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    held = SENTENCES[SENTENCES["sentence"].str.contains("measured remed")]
    numbers = [json.loads(text) for text in held["numbers"]]
    kept, every = (sum(int(each[name]) for each in numbers) for name in ("held", "all"))
    silent = [
        study for study in STUDIES if "findings" in study.merged_names and study.folder.name not in set(held["study"])
    ]
    unsaid = [table["holds"] for study in silent if len(table := study.tables()["predictions"])]
    kept, every = kept + int(sum(map(sum, unsaid))), every + sum(map(len, unsaid))
    which = f"All {every}" if kept == every else f"{kept} of {every}"
    assert (
        f"{which} remedies (runs with a setting that a finding advises) measured in {len(numbers) + len(unsaid)}"
        in readme
    )


LIMITS = {"compute": "computation", "latency": "latency", "memory": "memory", "too small": "too small a kernel"}


def test_these_limits_take_this_share_of_the_time_of_kernels():
    rows, roofs = table("counters", "counters"), table("counters", "roofs")
    reached = roofs.pivot_table(index="run", columns="roof", values="reached_per_s")
    seconds = rows["total_ns"] / rows["launches"] / 1e9
    flops_s = sum(rows[f"{kind}_flops"] / rows["run"].map(reached[kind]) for kind in ("fp32", "tf32", "bf16", "fp16"))
    compute, memory = flops_s / seconds, rows["dram_bytes"] / rows["run"].map(reached["memory"]) / seconds
    is_memory, is_compute = (memory >= 0.6) & (memory >= compute), compute >= 0.6
    limit = np.select([is_memory, is_compute, rows["waves"] < 1], ["memory", "compute", "too small"], "latency")
    share = rows["total_ns"] / rows.groupby("run")["total_ns"].transform("sum")
    table_of_run = share.groupby([rows["run"], limit]).sum().unstack(fill_value=0.0)
    keys = rows.drop_duplicates("run").set_index("run").reindex(table_of_run.index)
    forward, training = (
        table_of_run[(keys["mode"] == mode) & (keys["precision"] == precision)]
        for mode, precision in (("forward", "fp32"), ("train_step", "bf16"))
    )
    first, last = forward.median().idxmax(), training.median().idxmax()
    text = lead("counters", "l_counters")
    least, most = percents(forward[first].min(), forward[first].max())
    assert f"{LIMITS[first].capitalize()} limits {least} to {most} of the kernel time of a forward pass in fp32" in text
    assert f"{LIMITS[last]} limits {percents(training[last].item())[0]} in a training step" in text
    nearer = np.maximum(compute, memory).clip(upper=1)
    steps = table("counters", "phases").groupby("run")["step"].nunique()
    ms = rows["total_ns"] / rows["run"].map(steps) / 1e6
    worst = (ms * (1 - nearer)).idxmax()
    text = sentence("counters", "l_counters", 1)
    assert f"takes {ms[worst]:.1f} ms, and would take {ms[worst] * nearer[worst]:.1f} ms at its nearest roof" in text
    ranges = table("counters", "counter_ranges")
    softmax = ranges[(ranges["phase"] == "forward") & ranges["range"].str.endswith("computing softmax")]
    sums = softmax.groupby("run")[["dram_bytes", "counted_ns"]].sum().div(steps, axis=0).dropna()
    layers = table("counters", "runs").set_index("run")["num_layers"].reindex(sums.index).astype("float64")
    gb, rate = sums["dram_bytes"] / layers / 1e9, sums["dram_bytes"] / (sums["counted_ns"] / 1e9)
    shares = percents(*(rate / reached["memory"].reindex(sums.index)).agg(["min", "max"]))
    text = sentence("counters", "l_counters", 2)
    assert f"moves {gb.min():.3f} to {gb.max():.2f} GB per layer, at {shares[0]} to {shares[1]} of" in text


@pytest.mark.parametrize("study", ["parallel", "parallel-2026"])
def test_gradients_of_a_feed_forward_layer_take_this_share_of_its_backward_pass(study):
    names = ("runs", "kernels", "all_reduce", "collectives")
    runs, kernels, alone, collectives = (table(study, name) for name in names)
    runs = runs[runs["parallel"] == "naive"].set_index("run")
    gpus, layers, d_model, d_ff, tokens = (
        runs[name].astype("float64") for name in ("gpus", "num_layers", "d_model", "d_ff", "batch_size")
    )
    tokens, around = tokens * runs["context_length"], 2 * (gpus - 1) / gpus
    largest = alone[alone["bytes"] == alone["bytes"].max()].groupby("gpus")["mean_ms"].mean()
    matrix_bytes = 4 * d_model * d_ff
    communication_ms = 3 * matrix_bytes / alone["bytes"].max() * gpus.map(largest)
    is_layer = kernels["class"].str.startswith("gemm") & (kernels["range"] == "block > feed-forward")
    rows = kernels[is_layer & (kernels["step"] >= 0) & kernels["run"].isin(runs.index)]
    per_layer = rows.groupby("run")["step"].nunique() * layers
    ms = rows.groupby(["run", "phase"])["total_ns"].sum().unstack().div(per_layer, axis=0) / 1e6
    backward_ms = 2 * ms["forward"]  # twice the FLOPs at the same rate
    ratio = communication_ms / backward_ms
    shares = " to ".join(dict.fromkeys(percents(ratio.min(), ratio.max())))
    text = sentence(study, "communication_limits", 1)
    assert f"would take {shares} of the time of its backward pass" in text
    fewest = np.ceil(tokens * ratio)
    most = [
        max(
            n
            for n in 2 ** np.arange(1, 20)
            if communication_ms[run] / around[run] * 2 * (n - 1) / n <= backward_ms[run] * gpus[run] / n
        )
        for run in runs.index
    ]
    tokens_text, gpus_text = (
        " to ".join(dict.fromkeys(f"{value:.0f}" for value in (min(values), max(values)))) for values in (fewest, most)
    )
    assert f"no longer than computation on up to {gpus_text} GPUs" in text
    assert f"in batches of at least {tokens_text} tokens" in lead(study, "communication_limits")
    one = collectives[collectives["bucket"].isna() & (collectives["bytes"] == collectives["run"].map(matrix_bytes))]
    transfers = 3 * one.groupby("run")["transfer_ns"].mean() / 1e6 / communication_ms
    computed = ms["backward"] / backward_ms
    text = sentence(study, "communication_limits", 2)
    for times, values in (("computation takes {} times", computed), ("communication {} times", transfers)):
        ends = (f"{value:.2f}" if value >= 1 else f"{value:.3f}" for value in (values.min(), values.max()))
        assert times.format(" to ".join(dict.fromkeys(ends))) in text


def test_costs_of_buckets_are_predicted_from_other_sizes_with_this_error():
    rows = table("parallel", "bucket_costs")
    errors, others = [], []
    for row in rows.itertuples():
        like = rows[(rows["gpus"] == row.gpus) & (rows["bucket_mb"] != row.bucket_mb)]
        hidden = like["communication_ms"] - like["exposed_ms"]
        factor = ((like["measured_ms"] - like["exposed_ms"]) * hidden).sum() / (hidden**2).sum()
        errors.append(row.exposed_ms + factor * (row.communication_ms - row.exposed_ms) - row.measured_ms)
        same = like[(like["model"] == row.model) & (like["batch_size"] == row.batch_size)]
        others.append(same["measured_ms"].mean() - row.measured_ms)
    errors, others = np.abs(errors), np.abs(others)
    within = (errors <= 2 * rows["spread_ms"]).sum()
    text = sentence("parallel", "communication_limits", 3)
    assert f"a mean error of {errors.mean():.2f} ms (at most {errors.max():.1f} ms)" in text
    assert f"the other sizes of buckets as a prediction has a mean error of {others.mean():.2f} ms" in text
    assert f"{within} of {len(rows)} predictions" in sentence("parallel", "communication_limits", 4)


def test_a_token_takes_this_energy_in_bf16_and_in_fp32():
    windows, runs = table("energy", "energy_windows"), table("energy", "runs").set_index("run")
    windows = windows[windows["kind"] == "steps"]
    joules = (windows["joules"] / windows["steps"]).groupby(windows["run"]).mean()
    mj = 1e3 * joules / (runs["batch_size"] * runs["context_length"]).reindex(joules.index)
    low, high = mj["2.7B_ctx512_train_step_bf16"], mj["2.7B_ctx512_train_step"]
    assert re.findall(r"([\d.]+) mJ", lead("energy", "m_energy")) == [f"{low:.1f}", f"{high:.0f}"]
    assert f"{100 * low / high:.1f} % of the" in lead("energy", "m_energy")


@pytest.mark.parametrize(("study", "run"), [
    ("checkpoint", "2.7B_ctx512_train_step"), ("checkpoint-bf16", "2.7B_ctx1024_train_step"),
])  # fmt: skip
def test_checkpoints_take_this_time_and_leave_this_memory(study, run):
    timings, runs = table(study, "timings"), table(study, "runs").set_index("run")
    ms = timings[timings["phase"] == "step"].set_index("run")["mean_ms"]
    gib = [f"{runs.loc[name, 'peak_allocated_bytes'] / 2**30:.1f} GiB" for name in (f"{run}_checkpoint1", run)]
    longer = percents(ms[f"{run}_checkpoint1"] / ms[run] - 1)[0]
    assert f"trains in {gib[0]} instead of {gib[1]}, for {longer} more time." in lead(study, "j_checkpoint")


@pytest.mark.parametrize(("study", "place"), [("parallel", 3), ("parallel-2026", 2)])
def test_exposed_communication_takes_this_share_of_captured_steps(study, place):
    steps = table(study, "communication_steps")
    steps = steps[steps["communication_ms"] > 0]
    share = steps["exposed_communication_ms"] / steps["step_ms"]
    medians = share.groupby(steps["parallel"].astype("str")).median().sort_values()
    ends = percents(share.min(), share.max(), medians.iloc[0], medians.iloc[-1])
    assert [medians.index[0], medians.index[-1]] == ["overlapped", "naive"]
    text = "takes {} to {} of a step (medians: from {} with overlapped DDP to {} with naive DDP)".format(*ends)
    assert text in sentence(study, "n_communication", place)
