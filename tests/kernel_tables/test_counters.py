"""Counters of Nsight Compute: read as it prints them, joined to launches, and judged."""

import random
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernel_recorder.ncu_profile import ROUNDS, counters_command
from kernel_tables.counters.joining import (
    AMBIGUOUS,
    COMPUTE,
    LATENCY,
    MEMORY,
    NO_COUNTED_ROW,
    NOT_PROFILED,
    OTHER_DEPTH,
    TOO_SMALL,
    UNKNOWN,
    common_spelling,
    configurations,
    join_counters,
    launch_facts,
    verdicts_of,
)
from kernel_tables.counters.metrics import (
    FLOP_KINDS,
    INSTRUCTIONS,
    LIMITS,
    METRICS,
    MULTIPROCESSORS,
    NON_MATRIX_INSTRUCTIONS,
    OPERATION_INDICATORS,
    STALLS,
    TENSOR_INSTRUCTIONS,
    TENSOR_OPERATIONS,
    TIME_NS,
)
from kernel_tables.counters.reading import join_rounds, no_counters, read_counters, read_kept_counters
from kernel_tables.counters.work import WORK_COLUMNS, Roofs, rates_of, total_flops, work_of
from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic

PRINTED = Path(__file__).parents[1] / "captures" / "ncu_2025.3.1.csv"
LAUNCH = {"grid": "4x1x1", "block": "128x1x1"}


@pytest.fixture(scope="module")
def printed():
    return read_counters(PRINTED)


def counters(*rows: dict) -> pd.DataFrame:
    """Counted launches; what is not said of one is 0."""
    zeros = dict.fromkeys((metric.name for metric in (*METRICS, *OPERATION_INDICATORS)), 0.0)
    return pd.DataFrame([{"kernel": "k", **LAUNCH, **zeros, **row} for row in rows])


def launches(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame([{"kernel": "k", "class": "elementwise", **LAUNCH, "duration_ns": 100} | row for row in rows])


def test_what_ncu_prints_is_read_without_the_names_of_host_and_program(printed):
    assert list(printed.columns) == [
        "kernel",
        "grid",
        "block",
        *(metric.name for metric in (*METRICS, *OPERATION_INDICATORS)),
    ]
    assert (len(printed), printed["grid"].iloc[0], printed["block"].iloc[0]) == (10, "16x6x1", "128x1x1")
    assert "gpu-node-17" not in printed.to_csv() and "909" not in set(printed.to_csv().split(","))


def test_the_counted_flops_of_matrix_multiplies_of_known_shape_are_twice_m_n_k_within_the_padding_of_tiles(printed):
    flops = total_flops(printed).to_numpy()
    tokens, d, d_ff, vocabulary = 2048, 768, 3072, 10_000
    projection, feed_forward, head = 2 * tokens * d * d, 2 * tokens * d * d_ff, 2 * tokens * d * vocabulary
    scores = 2 * 4 * 12 * 512 * 512 * 64
    assert flops[:4] == pytest.approx([projection, scores, head, feed_forward], rel=0.02)  # fp32
    assert flops[6:9] == pytest.approx([head, feed_forward, projection], rel=0.02)  # bf16, one name and grid
    assert flops[9] == pytest.approx(2 * 2048 * 1024 * 1536, rel=0.001)  # tf32
    work = work_of(printed)
    assert work["bf16_flops"].gt(0).tolist() == [False] * 6 + [True] * 3 + [False]
    assert work["tf32_flops"].gt(0).tolist() == [False] * 9 + [True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"byte"', '"Kbyte"'), "dram__bytes_read.sum is in 'Kbyte', and 'byte' is read"),
        (lambda text: text[:-40], "columns: it is cut short"),
        (lambda text: text.replace("Kernel Name", "Kernel"), "no table of Nsight Compute"),
        (lambda text: "==ERROR== nothing\n", "no table of Nsight Compute"),
        (lambda text: text.replace('"8,744,960"', '"cut o"'), "'cut o', which is no number"),
    ],
)
def test_what_is_no_table_of_ncu_is_told_in_one_line(tmp_path, change, said):
    (tmp_path / "ncu.csv").write_text(change(PRINTED.read_text()))
    with pytest.raises(TraceError, match=said) as told:
        read_counters(tmp_path / "ncu.csv")
    assert "\n" not in str(told.value)


def test_what_a_gpu_does_not_count_is_missing_and_a_kind_of_flops_without_a_counter_is_none(printed):
    assert printed[TENSOR_OPERATIONS["fp16"]].isna().all()  # this ncu was not asked for it
    assert work_of(printed)["fp16_flops"].tolist() == [0.0] * 10
    nothing = work_of(counters({}).assign(**dict.fromkeys(INSTRUCTIONS.values(), np.nan)))
    assert nothing["fp32_flops"].isna().all()


def test_counters_that_were_kept_are_read_back_as_they_were(printed, tmp_path):
    kept = join_rounds([printed])
    kept.to_csv(tmp_path / "ncu.csv", index=False)
    pd.testing.assert_frame_equal(read_kept_counters(tmp_path / "ncu.csv"), kept)
    no_counters().to_csv(tmp_path / "ncu.csv", index=False)
    assert read_kept_counters(tmp_path / "ncu.csv").empty
    (tmp_path / "ncu.csv").write_text("a,b\n1\n")
    with pytest.raises(TraceError, match="are not those of counters"):
        read_kept_counters(tmp_path / "ncu.csv")


def test_both_tools_spelling_of_a_name_is_the_same():
    nsys = "void at::native::k<(int)4, at::native::<unnamed>::F<float>, std::array<char *, (unsigned long)2>>(int, T2)"
    ncu = "void at::k<4, at::<unnamed>::F<float>, std::array<char *, 2>>(int, T2)"
    assert common_spelling(nsys) == common_spelling(ncu)
    assert common_spelling(nsys) != common_spelling(nsys.replace("(int)4", "(int)8"))
    assert common_spelling("a::[lambda(int) (instance 1)]") != common_spelling("a::[lambda(int) (instance 2)]")


def test_a_launch_has_the_counters_of_its_name_grid_and_block():
    counted = counters({"kernel": "k"}, {"kernel": "k", "grid": "8x1x1"}, {"kernel": "k", "block": "64x1x1"})
    found = join_counters(launches({"grid": "8x1x1"}, {"block": "64x1x1"}, {}, {"kernel": "other"}), counted)
    assert found["counted_as"].tolist() == [1, 2, 0, NO_COUNTED_ROW]
    assert found["not_counted"].tolist() == ["", "", "", NOT_PROFILED]


def test_names_that_cannot_be_told_apart_have_no_counters():
    found = join_counters(
        launches({"kernel": "a::k<(int)1>"}, {"kernel": "b::k<(long)1>"}), counters({"kernel": "k<1>"})
    )
    assert found["not_counted"].tolist() == [AMBIGUOUS] * 2 and (found["counted_as"] == NO_COUNTED_ROW).all()


def test_a_matrix_multiply_of_several_depths_goes_to_the_one_that_took_as_long():
    fma, deep = INSTRUCTIONS["ffma"], {"kernel": "sgemm", "class": "gemm"}
    rows = [{"kernel": "sgemm", fma: flops, TIME_NS: ns} for flops, ns in ((1e6, 1000.0), (1e6, 990.0), (4e6, 4000.0))]
    times = (980, 3900, 800, 1300, 400, 5100)
    found = join_counters(launches(*({**deep, "duration_ns": ns} for ns in times)), counters(*rows))
    assert found["counted_as"].tolist() == [
        0,
        2,
        0,
        NO_COUNTED_ROW,
        0,
        NO_COUNTED_ROW,
    ]  # counting empties caches: it takes longer, not less
    assert found["not_counted"].tolist() == ["", "", "", OTHER_DEPTH, "", OTHER_DEPTH]
    others = join_counters(launches({"kernel": "sgemm", "duration_ns": 10}), counters(*rows[:1]))
    assert others["counted_as"].tolist() == [0]  # an elementwise kernel has no depth


def test_no_launch_and_no_nanosecond_is_lost_and_each_has_the_counters_that_a_loop_finds():
    draw = random.Random(0)
    sizes = [f"{n}x1x1" for n in (1, 2, 4)]
    made = launches(*(
        {"kernel": draw.choice("abc"), "grid": draw.choice(sizes), "duration_ns": draw.randrange(1, 999)}
        for _ in range(90)
    ))  # fmt: skip
    counted = counters(*({"kernel": name, "grid": grid, TIME_NS: 1.0} for name in "ab" for grid in sizes))
    found = join_counters(made, counted)
    for row in found.to_dict("records"):
        fitting = [
            n
            for n, c in enumerate(counted.to_dict("records"))
            if (c["kernel"], c["grid"]) == (row["kernel"], row["grid"])
        ]
        assert row["counted_as"] == (fitting[0] if fitting else NO_COUNTED_ROW)
    table = configurations(found)
    assert (table["launches"].sum(), table["total_ns"].sum()) == (90, made["duration_ns"].sum())
    one = found[(found["kernel"] == "a") & (found["grid"] == "2x1x1")]["duration_ns"]
    row = table[(table["kernel"] == "a") & (table["grid"] == "2x1x1")].iloc[0]
    assert row[["launches", "total_ns", "min_ns", "max_ns"]].tolist() == [len(one), one.sum(), one.min(), one.max()]


def test_shares_of_the_roofs_add_up_the_time_of_every_kind_of_flops():
    work = pd.DataFrame([[1e6, 0.0, 4e6, 0.0, 2e3, 5e3]], columns=WORK_COLUMNS)
    roofs = Roofs(1e9, {"fp32": 1e12, "tf32": None, "bf16": 8e12, "fp16": None})
    row = rates_of(work, pd.Series([4e-6]), roofs).iloc[0]
    assert row["compute_share"] == pytest.approx((1e-6 + 0.5e-6) / 4e-6)
    assert row["memory_share"] == pytest.approx(2e3 / 1e9 / 4e-6)
    assert (row["flops"], row["flops_per_byte"], row["flop_per_s"]) == pytest.approx((5e6, 2500.0, 1.25e12))
    unknown = rates_of(work, pd.Series([4e-6]), Roofs(None, dict.fromkeys(FLOP_KINDS))).iloc[0]
    assert unknown[["compute_share", "memory_share"]].isna().all()


def test_waves_and_their_tail_follow_from_the_blocks_and_what_limits_them_is_named():
    limits = dict.fromkeys(LIMITS.values(), 8.0) | {LIMITS["registers"]: 2.0}
    metrics = counters({**limits, MULTIPROCESSORS: 132.0, "sm__maximum_warps_per_active_cycle_pct": 25.0})
    row = launch_facts(pd.Series(["16x48x1"]), metrics).iloc[0]
    assert (row["waves"], row["tail"]) == pytest.approx((768 / 264, (3 - 768 / 264) / 3))
    assert (row["limited_by"], row["occupancy_possible"]) == ("registers", 0.25)


def test_the_two_largest_reasons_for_waiting_are_told_with_their_shares(printed):
    row = launch_facts(printed["grid"], printed).iloc[4]  # a division in fp32 of 50 million numbers
    assert row["stall"] == "data from L2 or DRAM" and 0.5 < row["stall_share"] < 1
    assert row["second_stall"] and row["second_stall_share"] < row["stall_share"]


@pytest.mark.parametrize(
    ("memory", "compute", "waves", "reason", "verdict"),
    [
        (0.7, 0.65, 3.0, "", MEMORY),
        (0.65, 0.7, 3.0, "", COMPUTE),
        (0.1, 0.6, 0.4, "", COMPUTE),
        (0.59, 0.1, 0.9, "", TOO_SMALL),
        (0.59, 0.59, 1.0, "", LATENCY),
        (np.nan, 0.9, 1.0, "", UNKNOWN),
        (np.nan, np.nan, np.nan, OTHER_DEPTH, UNKNOWN),
    ],
)
def test_every_verdict_follows_from_its_rule(memory, compute, waves, reason, verdict):
    columns = {"memory_share": [memory], "compute_share": [compute], "waves": [waves], "not_counted": [reason]}
    row = verdicts_of(pd.DataFrame(columns)).iloc[0]
    assert row["verdict"] == verdict and row["because"]
    if reason:
        assert row["because"] == reason


def test_the_sizes_of_launches_are_read_and_other_activities_have_none(tmp_path):
    made = Synthetic().kernel("k", at=10, grid=(16, 6, 8), block=(128, 1, 1)).kernel("k", at=20).memset(at=30)
    with Trace(made.write(tmp_path / "c.sqlite")) as trace:
        grid, block = trace.launch_sizes
    assert (grid.tolist(), block.tolist()) == (["16x6x8", "", ""], ["128x1x1", "", ""])


def test_every_kernel_but_those_of_nccl_is_counted_once_and_a_matrix_multiply_as_often_as_it_may_be_of_other_depths():

    def times(name: str) -> int:
        rounds = [one for one in ROUNDS if re.search(one.kernel_pattern.removeprefix("regex:"), name)]
        return sum(one.launches for one in rounds)

    multiplies = ("void cutlass::Kernel2<s>(P)", "nvjet_tst_1", "sm80_xmma_gemm_f", "void at::tinygemm_m16n8k16(P)")
    may_multiply = ("void pytorch_flash::flash_fwd_kernel<T>(P)", "triton_red_fused_addmm_0", "my_kernel", "attn_fwd")
    assert [times(name) for name in multiplies + may_multiply] == [1 + 5] * 8
    plain = ("void at::native::reduce_kernel<1>(T)", "void at::elementwise_kernel<4>(T)", "triton_poi_fused_add_0")
    softmaxes = (
        "void <unnamed>::softmax_warp_forward<float>(T)",
        "void (anonymous namespace)::softmax_warp_backward<T>()",
    )
    assert [times(name) for name in plain + softmaxes] == [1] * 5
    assert times("ncclDevKernel_AllReduce(ncclArgs)") == times("ncclDevKernel_gemm(ncclArgs)") == 0
    command = " ".join(counters_command(["python", "-m", "p"], Path("t.csv"), ROUNDS[1]))
    assert command.endswith("t.csv python -m p") and "--kernel-name-base demangled" in command
    assert "issue_stalled" not in command and "dram__bytes_read.sum" in command


def test_a_launch_counted_without_what_its_warps_wait_for_has_that_of_the_first_of_its_size():
    waited, other = STALLS["barrier"], {"grid": "8x1x1"}
    first = counters({waited: 3.0}, {waited: 5.0} | other, {waited: 4.0} | other)
    later = counters({TIME_NS: 70.0}, {TIME_NS: 80.0} | other, {"kernel": "new"}).drop(columns=list(STALLS.values()))
    table = join_rounds([first, later])
    assert table[waited].tolist()[:5] == [3.0, 5.0, 4.0, 3.0, 5.0] and np.isnan(table[waited].iloc[5])
    assert table[TIME_NS].tolist() == [0.0, 0.0, 0.0, 70.0, 80.0, 0.0]
    assert list(table.columns) == list(no_counters().columns)


def test_a_launch_whose_tensor_operations_nobody_counted_did_none_or_is_left_out():
    bf16, fp16, executed = TENSOR_OPERATIONS["bf16"], TENSOR_OPERATIONS["fp16"], TENSOR_INSTRUCTIONS
    not_asked, not_told = dict.fromkeys(TENSOR_OPERATIONS.values(), np.nan), {fp16: np.nan, executed: np.nan}
    first = counters(
        {"kernel": "plain", **not_asked, executed: 4096.0, NON_MATRIX_INSTRUCTIONS: 4096.0},  # constants are loaded so
        {"kernel": "multiplies", **not_asked, executed: 9.0},
        {"kernel": "hidden", **not_asked, executed: 9.0, NON_MATRIX_INSTRUCTIONS: 8.0},
        {"kernel": "on ordinary cores", **not_asked},
    )
    second = counters(
        {"kernel": "multiplies", bf16: 64.0} | not_told, {"kernel": "on ordinary cores", bf16: 0.0} | not_told
    )
    table = join_rounds([first, second])
    assert table["kernel"].tolist() == ["plain", "multiplies", "on ordinary cores"]
    assert table[bf16].tolist() == [0.0, 64.0, 0.0]
    assert table[fp16].isna().all()  # no counter of this GPU: it is none, where FLOPs are summed
    assert total_flops(table).tolist() == [0.0, 64.0, 0.0]
    alone = join_rounds([first])
    assert alone["kernel"].tolist() == ["plain", "on ordinary cores"] and total_flops(alone).tolist() == [0.0, 0.0]


def test_kernels_that_multiply_on_tensor_cores_are_told_from_those_that_load_constants_by_them():
    table = read_counters(PRINTED.with_name("ncu_2025.3.1_tensor_instructions.csv"))  # of an H200
    executed, others = table[TENSOR_INSTRUCTIONS], table[NON_MATRIX_INSTRUCTIONS]
    multiplies = table.loc[executed > others, "kernel"].str.split("_").str[:3].str.join("_")
    assert multiplies.tolist() == ["nvjet_sm90_tst", "nvjet_sm90_hsh", "cudnn_generated_fort", "sm90_xmma_gemm"]
    same = executed.eq(others) & executed.gt(0)
    assert table.loc[same, "kernel"].str.contains("sm80_xmma_gemm_f32f32_f32f32|exp_kernel|softmax|reduce").all()
    assert same.sum() == 5


NO_OPERATIONS = dict.fromkeys(TENSOR_OPERATIONS.values(), np.nan)
NOT_ASKED = dict.fromkeys((TENSOR_INSTRUCTIONS, NON_MATRIX_INSTRUCTIONS), np.nan)


@pytest.mark.parametrize(
    ("first", "second", "flops"),
    [
        # the GPU has no operations of this kernel, and of another: fp16 on Ampere, fp8, or a counter that failed
        ({TENSOR_INSTRUCTIONS: 9.0}, {TENSOR_OPERATIONS["fp16"]: np.nan}, {}),
        ({TENSOR_INSTRUCTIONS: 9.0}, {}, {}),
        ({TENSOR_INSTRUCTIONS: 9.0}, NO_OPERATIONS, {}),
        # this GPU does not tell the instructions that multiply no matrices
        ({TENSOR_INSTRUCTIONS: 9.0, NON_MATRIX_INSTRUCTIONS: np.nan}, None, {}),
        ({TENSOR_INSTRUCTIONS: 0.0, NON_MATRIX_INSTRUCTIONS: np.nan}, None, {"k": 0.0}),
        # it tells none: the name has to do
        (NOT_ASKED, None, {"k": 0.0}),
        (NOT_ASKED, {TENSOR_OPERATIONS["bf16"]: 8.0}, {"k": 8.0}),
    ],
)
def test_operations_that_nobody_counted_are_never_called_none_where_there_were_some(first, second, flops):
    other = {"kernel": "other", TENSOR_OPERATIONS["bf16"]: 64.0} | NOT_ASKED
    again = [] if second is None else [NOT_ASKED | second]
    table = join_rounds([counters(NO_OPERATIONS | first), counters(*again, other)])
    assert dict(zip(table["kernel"], total_flops(table), strict=True)) == flops | {"other": 64.0}


def test_the_operations_of_tensor_cores_are_asked_for_of_what_may_multiply_alone():
    assert not {metric.name for metric in ROUNDS[0].metrics} & set(TENSOR_OPERATIONS.values())
    assert not {metric.name for metric in ROUNDS[1].metrics} & set(STALLS.values())


def test_every_metric_is_asked_for_in_one_of_the_rounds():
    asked = {metric for of_round in ROUNDS for metric in of_round.metrics}
    assert asked == {*METRICS, *OPERATION_INDICATORS} and set(OPERATION_INDICATORS) <= set(ROUNDS[0].metrics)
