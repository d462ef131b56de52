"""(k): how many warm-up steps are enough, from times of steps that a person can check."""

import pandas as pd
import pytest

from workflow import text
from workflow.scripts import warmup
from workflow.tables import make_table

STEADY = [10.0] * 10


def list_keys(run: str) -> dict:
    """A run's leading columns; the number in its name is its context length."""
    return {"run": run, "model": "nano", "context_length": int(run), "mode": "forward", "batch_size": 1, "gpus": 1}


def times(name: str, by_run: dict[str, list[float]]) -> pd.DataFrame:
    rows = [
        list_keys(run) | {"phase": "step", "step": step, "ms": ms}
        for run, steps in by_run.items()
        for step, ms in enumerate(steps)
    ]
    return make_table(name, rows)


def find(warm: list[float], measured: list[float]) -> pd.Series:
    table = warmup.find_enough(times("warmup_steps", {"8": warm}), times("steps", {"8": measured}))
    return table.iloc[0]


@pytest.mark.parametrize(
    ("warm", "enough"),
    [
        ([10.0, 10.0, 10.0], 0),
        ([10.5, 10.0, 10.0], 0),  # a mean of ten steps is wrong by 0.5 %
        ([30.0, 10.0, 10.0], 1),  # by 20 %
        ([30.0, 12.0, 10.0], 2),
        ([10.0, 30.0, 10.0], 2),
    ],
)
def test_warm_up_steps_are_enough_from_which_on_no_mean_is_wrong(warm, enough):
    row = find(warm, STEADY)
    assert (row["enough"], row["taken"], row["tells"]) == (enough, 3, True)
    assert (row["first_ms"], row["measured_mean_ms"], row["first_ratio"]) == (warm[0], 10.0, warm[0] / 10)


def test_one_slow_step_of_ten_measured_ones_decides_nothing():
    row = find([30.0, 10.0, 10.0], [10.0] * 9 + [50.0])
    assert (row["enough"], row["tells"], row["tolerance"]) == (1, True, 0.01)


def test_a_run_does_not_tell_if_its_steps_differ_or_its_last_warm_up_step_was_needed():
    assert not find([30.0, 10.0], [10.0, 14.0, 7.0, 12.0])["tells"]
    assert not find([30.0, 10.0], [10.0])["tells"]  # one step says nothing of the next
    row = find([30.0, 30.0], STEADY)
    assert (row["enough"], row["tells"]) == (2, False)


def document(warm: dict[str, list[float]], measured: dict[str, list[float]]) -> str:
    runs = make_table("runs", [list_keys(run) | {"device": "cuda"} for run in measured])
    enough = warmup.find_enough(times("warmup_steps", warm), times("steps", measured))
    made = text.environment({"runs": runs, "warmup_enough": enough}).get_template("k_warmup.md.j2").render()
    return made.split("\n\n")[1]


def test_the_answer_is_pooled_so_that_one_run_decides_nothing():
    measured = {str(number): STEADY for number in range(1, 21)}
    warm = {run: [30.0, 10.0, 10.0] for run in measured} | {"7": [30.0, 10.0, 30.0, 10.0]}
    said = document(warm, measured)
    assert said.startswith("1 warm-up step is enough in 19 of 20 runs. The first step takes 3.00 times as long")
    assert "(nano at context 10, forward pass: 30.0 instead of 10.0 ms)" in said


def test_the_answer_says_that_it_cannot_be_told():
    assert "warm-up steps are enough cannot be told" in document({"8": [30.0, 10.0]}, {"8": [10.0, 14.0, 7.0, 12.0]})
    assert document({}, {"8": []}).startswith("Not answered: no run kept the times of its warm-up steps (nano at")
