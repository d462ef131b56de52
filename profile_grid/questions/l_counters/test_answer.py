"""(l): what limits kernels, sums of what they did, the roofs, and FLOPs beside those of the shapes."""

from types import SimpleNamespace

import pandas as pd
import pytest

from cs336_model.arithmetic.flops import ModelShape, forward_flops, matmul_flops
from kernel_tables.counters.metrics import DRAM_BYTES, INSTRUCTIONS, LIMITS, METRICS, MULTIPROCESSORS, TIME_NS
from kernel_tables.counters.reading import no_counters
from profile_grid.documents.documents import document_names, documents
from profile_grid.documents.summaries import Summaries
from profile_grid.stages.counters.tables import tables_of_launches
from tests.profile_grid.made_up import GEMM, MUL, SOFTMAX, Kernel, Made, forward_kernels, merged
from tests.profile_grid.made_up_answers import own_tables
from tests.profile_grid.test_answers import PROVENANCE, line_of

QUESTION = "l_counters"
SHAPE = ModelShape(4, 512, 10_000, 768, 12, 12, 3072)
HEAD = matmul_flops(SHAPE)["head"]
SDPA = "block > attention > scaled dot product attention > computing softmax"
ROOFS = {"memory": 4e12, "fp32": 50e12, "tf32": None, "bf16": 800e12, "fp16": None}
FULL = {MULTIPROCESSORS: 132.0, "sm__maximum_warps_per_active_cycle_pct": 100.0, **dict.fromkeys(LIMITS.values(), 8.0)}
LAUNCHES = (  # kernel, class, grid, phase, range, launches of a step, µs of each
    (GEMM, "gemm", "16x79x1", "forward", "head", 1, 800),
    (SOFTMAX, "softmax", "2048x1x1", "forward", SDPA, 12, 20),
    (MUL, "elementwise", "4x1x1", "forward", "block > norm", 6, 10),
    (GEMM, "gemm", "16x79x1", "backward", "head", 2, 800),
    (MUL, "elementwise", "4x1x1", "optimizer", "", 4, 10),
)


def metrics(kernel: str, grid: str, flops: float, moved: float, us: float) -> dict:
    """What ncu counts of one launch with these FLOPs in fp32, bytes moved to or from DRAM, and µs; all else is 0."""
    counts = {INSTRUCTIONS["ffma"]: flops / 2, DRAM_BYTES[0]: moved, TIME_NS: 1000.0 * us}
    zeros = dict.fromkeys((metric.name for metric in METRICS), 0.0)
    return {"kernel": kernel, "grid": grid, "block": "128x1x1"} | zeros | FULL | counts


def counters(head_ratio: float) -> pd.DataFrame:
    """The counters of each kernel of LAUNCHES; `head_ratio`: as for `counted`."""
    rows = [
        metrics(GEMM, "16x79x1", head_ratio * HEAD, 1e8, 800),
        metrics(SOFTMAX, "2048x1x1", 1e7, 7.2e7, 20),
        metrics(MUL, "4x1x1", 1e3, 1e3, 10),
    ]
    return pd.DataFrame(rows, columns=no_counters().columns)


def launches(steps: int, phases: tuple[str, ...]) -> pd.DataFrame:
    rows = [
        (kernel, of_class, grid, "128x1x1", step, phase, path, 1000 * us)
        for step in range(steps)
        for kernel, of_class, grid, phase, path, count, us in LAUNCHES
        if phase in phases
        for _ in range(count)
    ]
    return pd.DataFrame(rows, columns=["kernel", "class", "grid", "block", "step", "phase", "range", "duration_ns"])


def counted(*runs: Made, head_ratio: float = 1.01) -> dict[str, pd.DataFrame]:
    """The merged tables of runs with counters; `head_ratio`: counted FLOPs of the head ÷ those of the shapes."""
    tables, counter_tables = merged(list(runs)), {}
    result = SimpleNamespace(
        facts={"roofs": ROOFS}, program=SimpleNamespace(machine=SimpleNamespace(device_name="NVIDIA H200"))
    )
    for run in runs:
        phases = ("forward",) if run.mode == "forward" else ("forward", "backward", "optimizer")
        status, run_tables = tables_of_launches(launches(run.steps, phases), counters(head_ratio), result)
        assert status["status"] == "complete"
        for name, table in run_tables.items():
            counter_tables.setdefault(name, []).append(table.assign(**run.leading)[[*run.leading, *table.columns]])
    changes = {"counters_status": "complete", "forward_flops": forward_flops(SHAPE)["forward"]}
    runs_table = tables["runs"].assign(**changes)
    joined = {name: pd.concat(of_runs, ignore_index=True) for name, of_runs in counter_tables.items()}
    return tables | joined | {"runs": runs_table}


def answered(tables: dict[str, pd.DataFrame]) -> str:
    return documents(own_tables(QUESTION, tables), tables["runs"], PROVENANCE, [QUESTION])[QUESTION]


FORWARD, TRAINING = Made(), Made(mode="train_step")


def test_the_question_is_asked_where_a_run_was_asked_for_counters_and_nowhere_else():
    assert QUESTION not in document_names(merged([FORWARD])["runs"])
    assert QUESTION in document_names(counted(FORWARD)["runs"])


def test_a_kernel_stands_with_its_time_of_a_pass_and_its_verdict():
    table = own_tables(QUESTION, counted(TRAINING))["counter_kernels"].set_index("kernel")
    assert table["gpu_time_ms"].tolist() == pytest.approx([2.4, 0.24, 0.1])
    assert table["verdict"].tolist() == ["compute", "memory", "too small"]
    assert table.loc[GEMM, "invocations"] == 3 and table["share"].sum() == pytest.approx(1)
    assert table.loc[SOFTMAX, "memory_share"] == pytest.approx(7.2e7 / 4e12 / 20e-6)


def test_phases_classes_parts_and_ranges_each_hold_all_kernels():
    table = own_tables(QUESTION, counted(TRAINING))["counter_sums"]
    for _, rows in table.groupby("by"):
        assert rows["gpu_time_ms"].sum() == pytest.approx(2.74) and rows["share"].sum() == pytest.approx(1)
        assert rows["flops"].sum() == pytest.approx(3 * 1.01 * HEAD + 12 * 1e7 + 10 * 1e3)
        assert rows["dram_bytes"].sum() == pytest.approx(3 * 1e8 + 12 * 7.2e7 + 10 * 1e3)
    names = {by: set(rows["name"]) for by, rows in table.groupby("by")}
    assert names["phase"] == {"forward", "backward", "optimizer"}
    assert names["class"] == {"gemm", "softmax", "elementwise"}
    parts = table[table["by"] == "part"]
    assert set(zip(parts["phase"], parts["name"], strict=True)) == {
        ("forward", "head"), ("forward", "computing softmax"), ("forward", "norm"), ("backward", "head"),
        ("optimizer", "(no inner range)"),
    }  # fmt: skip
    softmax = parts[parts["name"] == "computing softmax"].iloc[0]
    assert softmax["memory_share"] == pytest.approx(12 * 7.2e7 / 4e12 / 240e-6)


def test_counted_flops_stand_beside_those_of_the_shapes_twice_as_many_in_the_backward_pass():
    table = own_tables(QUESTION, counted(TRAINING))["counter_matmuls"].set_index("pass")
    assert table["shape_flops"].to_dict() == {"forward": HEAD, "backward": 2 * HEAD}
    assert table["ratio"].tolist() == pytest.approx([1.01, 1.01]) and table["within_padding"].all()
    tables = counted(TRAINING)
    tables["runs"]["forward_flops"] += 1  # somebody else's model
    assert own_tables(QUESTION, tables)["counter_matmuls"].empty


def test_a_gap_to_the_shapes_beyond_the_padding_of_tiles_is_said():
    text = answered(counted(FORWARD, head_ratio=1.3))
    assert "slices of K can explain the difference in 0 of 1 rows of the table of FLOPs; not in head (small at" in text
    assert " no | " in line_of(text, "small", "512", "forward pass", "forward", "head", "40.89")


def test_the_sentences_say_what_limits_what_is_furthest_from_its_roof_and_what_the_roofs_are():
    text = answered(counted(FORWARD))
    assert "Computation limits 72.7 % of the kernel time of a forward pass in fp32 (small at context 512)." in text
    headings, shares = (
        next(line for line in text.split("\n") if cell in line) for cell in ("| compute | memory |", " 72.7 % | 21.8 %")
    )
    assert [cell.strip() for cell in headings.split("|")][-4:-1] == ["compute", "memory", "too small"]
    assert [cell.strip() for cell in shares.split("|")][-4:-1] == ["72.7 %", "21.8 %", "5.5 %"]
    assert "**sgemm 256×128 nn** could gain the most: it takes 0.800 ms, and would take 0.635 ms at its nearest" in text
    assert "computing softmax moves 0.0720 GB per layer, at 90.0 % of the DRAM roof" in text
    assert "4.00 TB/s (83.3 %)" in text


def test_the_document_holds_kernels_parts_phases_products_roofs_and_the_rules_of_the_verdicts():
    text = answered(counted(FORWARD, TRAINING))
    assert "| compute " in line_of(text, "small", "512", "training step", "**sgemm 256×128 nn**", "16x79x1")
    assert "90.0 %" in line_of(text, "small", "512", "forward pass", "forward", "computing softmax")
    assert "- too small: neither of these, and the kernel's blocks do not fill the GPU once" in text
    assert "50.0 TFLOP/s (74.6 %)" in text


def test_products_whose_tiles_reach_far_over_the_edges_are_named():
    tables = counted(TRAINING)
    summaries = dict(own_tables(QUESTION, tables))
    matmuls = summaries["counter_matmuls"]
    padded = matmuls.iloc[[0]].assign(part="final matmul", ratio=1.202, padded_ratio=1.2)
    summaries["counter_matmuls"] = pd.concat([matmuls, padded], ignore_index=True)
    text = documents(summaries, tables["runs"], PROVENANCE, [QUESTION])[QUESTION]
    assert "; padding adds 20.0 % in " in text and " of them (" in text
    assert "final matmul; small at context 512)." in text


def test_products_are_held_against_the_tiles_of_the_kernels_that_computed_them():
    gemm = Kernel("forward", "head", GEMM, "gemm", 1, 800.0)
    verdicts = {}
    for ratio in (1.03, 1.0124, 0.99):  # 10 000 words in tiles of 128 are 10 112, in tiles of 256 are 10 240
        row = own_tables(QUESTION, counted(Made(kernels=(gemm,)), head_ratio=ratio))["counter_matmuls"].iloc[0]
        verdicts[ratio] = (round(row["padded_ratio"], 4), row["within_padding"])
    assert verdicts == {1.03: (1.024, True), 1.0124: (1.0112, True), 0.99: (1.0112, False)}


def test_products_of_which_not_all_launches_were_counted_are_not_compared_with_the_shapes():
    tables = counted(TRAINING)
    ranges = tables["counter_ranges"]
    lacking = (ranges["phase"] == "forward") & (ranges["range"] == "head")
    ranges.loc[lacking, ["counted_ns", "fp32_flops"]] *= 0.75
    table = own_tables(QUESTION, tables)["counter_matmuls"].set_index("pass")
    assert table["ratio"].isna().to_dict() == {"forward": True, "backward": False}
    assert table["within_padding"].isna().to_dict() == {"forward": True, "backward": False}
    text = answered(tables)
    assert "Counted FLOPs are 1.01 times those of the shapes" in text
    assert "not compared where launches were not counted: head (small at context 512)." in text
    assert "× 0.75" not in text


def test_a_grid_whose_counters_could_not_be_had_says_so_once_and_leaves_the_question_out():
    tables = merged([Made(kernels=forward_kernels())])
    runs = tables["runs"].assign(counters_status="unsupported", reason="no counters: why")
    text = answered(tables | {"runs": runs})
    assert "Not answered: no run has counters of its kernels." in text and text.count("no counters: why") == 1
    assert "Definitions:" not in text and "|" not in text
    of_all = documents(Summaries(tables), runs, PROVENANCE)["answers"]
    assert QUESTION not in document_names(runs) and "counters of its kernels" not in of_all
    assert of_all.count("no counters: why") == 1
    assert QUESTION in document_names(runs.assign(counters_status="incomplete"))
