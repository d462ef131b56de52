"""Counters of Nsight Compute: read as it prints them, joined to launches, and judged."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kernel_tables.counters import (
    CONFIGURATION,
    FLOP_KINDS,
    GROUPS,
    METRICS,
    NO_COUNTED_ROW,
    OPERATION_INDICATORS,
    join_counters,
    launch_facts,
    rates_of,
    read_counters,
    verdicts_of,
    without_uncounted,
    work_of,
)  # fmt: skip
from kernel_tables.errors import TraceError

PRINTED = Path(__file__).parents[1] / "captures" / "ncu_2025.3.1.csv"
LAUNCH = {"grid": "4x1x1", "block": "128x1x1"}
OPERATIONS, STALLS, LIMITS = (GROUPS[name] for name in ("tensor operations", "stalls", "limits"))
FMA, NS, COUNT = GROUPS["instructions"]["ffma"], GROUPS["time"]["ns"], GROUPS["multiprocessors"]["count"]
TENSOR, NO_MATRIX = OPERATION_INDICATORS
NONE_COUNTED = dict.fromkeys(OPERATIONS.values(), np.nan)
NOT_ASKED = dict.fromkeys(OPERATION_INDICATORS, np.nan)


@pytest.fixture(scope="module")
def printed():
    return read_counters(PRINTED)


def counters(*rows: dict) -> pd.DataFrame:
    """Counted launches; what is not said of one is 0."""
    zeros = dict.fromkeys((*METRICS, *OPERATION_INDICATORS), 0.0)
    return pd.DataFrame([{"kernel": "k", **LAUNCH, **zeros, **row} for row in rows])


def launches(*rows: dict) -> pd.DataFrame:
    return pd.DataFrame([{"kernel": "k", "class": "elementwise", **LAUNCH, "duration_ns": 100} | row for row in rows])


def flops_of(table: pd.DataFrame) -> np.ndarray:
    return work_of(table)[[f"{kind}_flops" for kind in FLOP_KINDS]].sum(axis=1).to_numpy()


def test_what_ncu_prints_is_read_without_the_names_of_host_and_program(printed):
    assert list(printed.columns) == [*CONFIGURATION, *METRICS, *OPERATION_INDICATORS]
    assert (len(printed), *printed.loc[0, ["grid", "block"]]) == (10, "16x6x1", "128x1x1")
    assert "gpu-node-17" not in printed.to_csv() and "909" not in set(printed.to_csv().split(","))


def test_counted_flops_of_matrix_multiplies_are_twice_m_n_k_within_the_padding_of_tiles(printed):
    tokens, d, d_ff, vocabulary = 2048, 768, 3072, 10_000
    projection, feed_forward, head = 2 * tokens * d * d, 2 * tokens * d * d_ff, 2 * tokens * d * vocabulary
    scores = 2 * 4 * 12 * 512 * 512 * 64
    flops, work = flops_of(printed), work_of(printed)
    assert flops[:4] == pytest.approx([projection, scores, head, feed_forward], rel=0.02)  # fp32
    assert flops[6:9] == pytest.approx([head, feed_forward, projection], rel=0.02)  # bf16, one name and grid
    assert flops[9] == pytest.approx(2 * 2048 * 1024 * 1536, rel=0.001)  # tf32
    assert [np.flatnonzero(work[f"{kind}_flops"]).tolist() for kind in ("bf16", "tf32")] == [[6, 7, 8], [9]]
    assert printed[OPERATIONS["fp16"]].isna().all() and work["fp16_flops"].eq(0).all()  # ncu was not asked for it


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace('"byte"', '"Kbyte"'), "dram__bytes_read.sum is in 'Kbyte'; use --print-units base"),
        (lambda text: text[:-40], "or it is cut short"),
        (lambda text: text.replace("Kernel Name", "Kernel"), "no table of Nsight Compute"),
        (lambda text: text.replace('"8,744,960"', '"cut o"'), "could not convert string to float: 'cut o'"),
    ],
)
def test_what_is_no_table_of_ncu_is_refused_in_one_line(tmp_path, change, said):
    (tmp_path / "ncu.csv").write_text(change(PRINTED.read_text()))
    with pytest.raises(TraceError, match=said) as raised:
        read_counters(tmp_path / "ncu.csv")
    assert "\n" not in str(raised.value)


def test_a_launch_has_the_counters_of_its_name_in_the_spelling_of_both_tools_grid_and_block():
    nsys = "void at::native::k<(int)4, at::native::<unnamed>::F<float>, std::array<char *, (unsigned long)2>>(int, T2)"
    ncu = "void at::k<4, at::<unnamed>::F<float>, std::array<char *, 2>>(int, T2)"
    made = launches({"kernel": nsys, "grid": "8x1x1"}, {"kernel": nsys.replace(")4", ")8")}, {"block": "64x1x1"}, {})
    counted = counters({}, {"kernel": ncu, "grid": "8x1x1"}, {"block": "64x1x1"})
    found = join_counters(made, counted)
    assert found["counted_as"].tolist() == [1, NO_COUNTED_ROW, 2, 0]
    assert (found["not_counted"] == "").tolist() == [True, False, True, True]


def test_a_matrix_multiply_of_several_depths_goes_to_the_one_that_took_as_long():
    rows = [{"kernel": "sgemm", FMA: flops, NS: ns} for flops, ns in ((1e6, 1000.0), (1e6, 990.0), (4e6, 4000.0))]
    deep, times = {"kernel": "sgemm", "class": "gemm"}, (980, 3900, 800, 1300, 400, 5100)
    found = join_counters(launches(*({**deep, "duration_ns": ns} for ns in times)), counters(*rows))
    # Counting empties caches: it takes longer, not less.
    assert found["counted_as"].tolist() == [0, 2, 0, NO_COUNTED_ROW, 0, NO_COUNTED_ROW]
    assert found["not_counted"].str.contains("another depth").tolist() == [False] * 3 + [True, False, True]
    others = join_counters(launches({"kernel": "sgemm", "duration_ns": 10}), counters(*rows[:1]))
    assert others["counted_as"].tolist() == [0]  # an elementwise kernel has no depth


def test_shares_of_the_roofs_add_up_the_time_of_every_kind_of_flops():
    work = pd.DataFrame([[1e6, 0.0, 4e6, 0.0, 2e3, 5e3]], columns=work_of(counters({})).columns)
    peaks = {"fp32": 1e12, "tf32": np.nan, "bf16": 8e12, "fp16": np.nan}
    row = rates_of(work, pd.Series([4e-6]), peaks, 1e9).iloc[0]
    assert row["compute_share"] == pytest.approx((1e-6 + 0.5e-6) / 4e-6)
    assert row["memory_share"] == pytest.approx(2e3 / 1e9 / 4e-6)
    assert (row["flops"], row["flops_per_byte"], row["flop_per_s"]) == pytest.approx((5e6, 2500.0, 1.25e12))
    unknown = rates_of(work, pd.Series([4e-6]), dict.fromkeys(FLOP_KINDS, np.nan), np.nan).iloc[0]
    assert unknown[["compute_share", "memory_share"]].isna().all()


def test_waves_limits_and_stalls_of_launches(printed):
    limits = dict.fromkeys(LIMITS.values(), 8.0) | {LIMITS["registers"]: 2.0}
    counted = counters({**limits, COUNT: 132.0, GROUPS["occupancy"]["possible"]: 25.0, "grid": "16x48x1"})
    row = launch_facts(counted["grid"], counted).iloc[0]
    assert row["waves"] == pytest.approx(768 / 264)
    assert (row["limited_by"], row["occupancy_possible"]) == ("registers", 0.25)
    division = launch_facts(printed["grid"], printed).iloc[4]  # in fp32, of 50 million numbers
    assert division["stall"] == "data from L2 or DRAM"


def test_every_verdict_follows_from_its_rule():
    rows = [(0.7, 0.65, 3.0, ""), (0.65, 0.7, 3.0, ""), (0.59, 0.1, 0.9, ""), (0.59, 0.59, 1.0, "")]
    rows.append((np.nan, np.nan, np.nan, "why"))
    table = verdicts_of(pd.DataFrame(rows, columns=["memory_share", "compute_share", "waves", "not_counted"]))
    assert table.tolist() == ["memory", "compute", "too small", "latency", "not counted"]


@pytest.mark.parametrize(
    ("counted", "flops"),
    [
        ({TENSOR: 9.0}, {}),  # which the GPU does not count: fp8, or fp16 on Ampere
        ({TENSOR: 9.0, NO_MATRIX: 8.0} | NONE_COUNTED, {}),
        ({TENSOR: 4096.0, NO_MATRIX: 4096.0} | NONE_COUNTED, {"k": 0.0}),  # constants are loaded so
        (NOT_ASKED | NONE_COUNTED, {"k": 0.0}),
        (NOT_ASKED | {OPERATIONS["bf16"]: 8.0}, {"k": 8.0}),
    ],
)
def test_operations_that_nobody_counted_are_never_called_none_where_there_were_some(counted, flops):
    table = without_uncounted(counters(counted, {"kernel": "other", OPERATIONS["bf16"]: 64.0} | NOT_ASKED))
    assert dict(zip(table["kernel"], flops_of(table), strict=True)) == flops | {"other": 64.0}
    assert list(table.columns) == [*CONFIGURATION, *METRICS]
