"""The tables of (a) to (e): sums that one can do in the head, and what is missing stays missing."""

from pathlib import Path

import pandas as pd
import pytest

from tests.workflow.small_tables import BIG_GEMM, make_run, make_tables, write_tables
from workflow.scripts import summaries


def summarize(folder: Path, table: str, *runs: dict) -> pd.DataFrame:
    summaries.main(write_tables(folder, *runs), [str(folder / f"{table}.parquet")])
    return pd.read_parquet(folder / f"{table}.parquet")


def test_a_range_of_a_library_belongs_to_the_part_around_it(tmp_path):
    parts = summarize(tmp_path, "training_parts", make_run("forward"), make_run("train", mode="train_step"))
    assert parts.set_index(["pass", "part"])["gpu_time_ms"]["backward", "computing softmax"] == pytest.approx(0.5005)
    assert set(parts["run"]) == {"train"}  # the other has no backward pass


def test_a_step_without_a_kernel_counts_as_zero(tmp_path):
    run = make_run("forward", steps=2)
    run["kernels"] = [row for row in run["kernels"] if row["kernel"] != BIG_GEMM or row["step"] == 0]
    rows = summarize(tmp_path, "class_shares", run).query("`class` == 'gemm/cutlass' and phase == 'forward'")
    row = rows.iloc[0]
    assert row["gpu_time_ms"] == pytest.approx(0.25) and row["invocations"] == 1
    assert row["gpu_time_std_ms"] == pytest.approx(0.5 / 2**0.5)


WARM_UP = [  # ms of warm-up steps, beside measured ones of 4 ms in the same process; the number that is needed
    ([12.0, 4.1, 4.0], 1), ([4.1, 4.0, 4.0], 0), ([4.0, 12.0, 4.0], 2), ([12.0, 4.0, 5.0], None),
]  # fmt: skip


@pytest.mark.parametrize(("ms", "enough"), WARM_UP)
def test_warm_up_steps_are_enough_after_which_all_take_what_the_measured_ones_take(ms, enough):
    tables = make_tables(make_run("forward"))
    warm = [{"run": "forward", "phase": "step", "step": step, "ms": one} for step, one in enumerate(ms)]
    steps = [{"run": "forward", "phase": "step", "process": number, "ms": ms} for number, ms in ((1, 4.0), (2, 9.0))]
    timed = (tables[name] for name in ("runs", "timings", "phases"))
    row = summaries.summarize_forward(*timed, pd.DataFrame(warm), pd.DataFrame(steps))
    assert row["first_step_ratio"][0] == ms[0] / 4 and row["warmup_enough"].isna()[0] == (enough is None)
    assert enough is None or row["warmup_enough"][0] == enough
