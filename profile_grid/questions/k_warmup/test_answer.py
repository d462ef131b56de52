"""(k): what would have been reported after fewer warm-up steps, from times of steps that a person can check."""

import pandas as pd
import pytest

from profile_grid.documents.documents import document_names
from profile_grid.documents.summaries import Summaries
from tests.profile_grid.made_up import Made, merged
from tests.profile_grid.made_up_answers import document_of
from tests.profile_grid.test_answers import line_of

SLOW = {"step": [100.0, 20.0, 10.0], "forward": [80.0, 12.0, 6.0], "backward": [20.0, 8.0, 4.0]}
STEADY = {"step": [9.0, 11.0, 10.0, 10.0], "forward": [5.0, 7.0, 6.0, 6.0], "backward": [4.0, 4.0, 4.0, 4.0]}
TABLES = ["warmup_reports", "warmup_enough"]


def timed(run: Made, warm: dict[str, list[float]], measured: dict[str, list[float]]) -> dict[str, pd.DataFrame]:
    """The merged tables of one run with the times of its warm-up and measured steps, by phase, in ms."""
    tables = merged([run])
    for name, times in (("warmup_steps", warm), ("steps", measured)):
        rows = [
            run.leading | {"phase": phase, "step": step, "ms": ms}
            for phase, phase_ms in times.items()
            for step, ms in enumerate(phase_ms)
        ]
        tables[name] = pd.DataFrame(rows, columns=tables[name].columns) if rows else tables[name]
    return tables | {"runs": tables["runs"].assign(steps_warmed=len(warm.get("step", [])), parameters=1)}


def joined(*runs: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {name: pd.concat([tables[name] for tables in runs], ignore_index=True) for name in runs[0]}


def reported(tables: dict[str, pd.DataFrame], phase: str = "step") -> list[tuple]:
    """(warm-up steps, steps reported after these, their mean) in each row of `warmup_reports`."""
    table = Summaries(tables, TABLES)["warmup_reports"]
    return [tuple(row) for row in table[table["phase"] == phase][["warmup_steps", "n", "mean_ms"]].to_numpy()]


def answered(tables: dict[str, pd.DataFrame]) -> str:
    return document_of("k_warmup", tables)


def test_the_question_is_asked_where_a_run_kept_its_warm_up_and_nowhere_else():
    assert "k_warmup" not in document_names(merged([Made()])["runs"])
    assert "k_warmup" in document_names(timed(Made(), SLOW, STEADY)["runs"])


def test_a_report_after_fewer_warm_up_steps_is_the_mean_of_as_many_steps_as_were_measured():
    # 100, 20, 10 | 9, 11, 10, 10: after one warm-up step the four that follow are 20, 10, 9, 11
    assert reported(timed(Made(), SLOW, STEADY)) == [(0, 4, 34.75), (1, 4, 12.5), (2, 4, 10.0), (3, 4, 10.0)]
    assert reported(timed(Made(), SLOW, STEADY), "backward")[0] == (0, 4, 9.0)


def test_the_report_after_all_warm_up_steps_is_what_was_measured():
    table = Summaries(timed(Made(), SLOW, STEADY), TABLES)["warmup_reports"]
    last = table[(table["phase"] == "step") & (table["warmup_steps"] == 3)].iloc[0]
    assert (last["mean_ms"], last["ratio"]) == (10.0, 1.0)
    assert last["std_ms"] == pytest.approx((2 / 3) ** 0.5)


def test_enough_is_the_fewest_from_which_on_every_report_is_within_the_tolerance():
    row = Summaries(timed(Made(), SLOW, STEADY), TABLES)["warmup_enough"].query("phase == 'step'").iloc[0]
    assert (row["first_ms"], row["measured_mean_ms"], row["first_ratio"]) == (100.0, 10.0, 10.0)
    assert row["tolerance"] == pytest.approx(2 * (2 / 3) ** 0.5 / 2 / 10)  # two standard errors of four steps
    assert (row["enough"], row["taken"]) == (2, 3)


def test_one_report_that_is_right_by_chance_is_not_enough():
    # 10, 30 | 20, 20: the mean of the first two is right, that of the two behind the first is not
    made = timed(Made(), {"step": [10.0, 30.0]}, {"step": [20.0, 20.0]})
    assert reported(made) == [(0, 2, 20.0), (1, 2, 25.0), (2, 2, 20.0)]
    assert Summaries(made, TABLES)["warmup_enough"]["enough"].tolist() == [2]
    text = answered(made)
    assert "More than the 2 warm-up steps taken may be needed.\n" in text and "2 or more" in text


def test_runs_of_which_it_is_not_known_do_not_hide_what_is_enough_in_the_others():
    other = timed(Made(mode="train_step"), {"step": [10.0, 30.0]}, {"step": [20.0, 20.0]})
    text = answered(joined(timed(Made(), {"step": [100.0, 10.0]}, {"step": [10.0] * 4}), other))
    assert "1 warm-up step is enough in 1 of 2 runs." in text


def test_steps_that_scatter_by_more_than_the_tolerance_tell_nothing():
    text = answered(timed(Made(), SLOW, STEADY))
    assert "too much to say how many warm-up steps are enough: their mean is known only to within 8.2 %." in text
    assert line_of(text[text.index("÷ measured") :], "small", "512", "forward pass").split("|")[-2].strip() == "?"


def test_where_the_first_step_is_like_the_others_none_is_needed():
    made = timed(Made(), {"step": [10.0, 10.0]}, {"step": [10.0, 10.0, 10.0]})
    assert "0 warm-up steps are enough in the only run." in answered(made)


def test_one_measured_step_has_no_known_tolerance():
    made = timed(Made(), {"step": [10.2]}, {"step": [10.0]})
    row = Summaries(made, TABLES)["warmup_enough"].iloc[0]
    assert (row["tolerance"], row["enough"]) == (float("inf"), 0)


def test_runs_keep_to_their_own_steps():
    other = timed(Made(mode="train_step"), {"step": [7.0]}, {"step": [5.0, 5.0]})
    table = Summaries(joined(timed(Made(), SLOW, STEADY), other), TABLES)["warmup_enough"]
    whole = table[table["phase"] == "step"]
    assert whole["taken"].tolist() == [3, 1] and whole["first_ratio"].tolist() == [10.0, 1.4]


def test_a_run_that_ran_out_of_memory_after_its_warm_up_has_no_reports():
    lost = timed(Made(mode="train_step"), {"step": [7.0]}, {})
    text = answered(joined(timed(Made(), SLOW, STEADY), lost))
    assert "training step" not in text.split("Definitions")[0]


def test_the_document_says_how_long_the_first_step_takes_and_what_fewer_would_have_reported():
    text = answered(timed(Made(), SLOW, STEADY))
    assert "The first step takes 10.0 times as long as later ones.\n" in text
    cells = [cell.strip() for cell in line_of(text, "small", "512", "forward pass", "35 ± 44").split("|")]
    assert cells[4:8] == ["35 ± 44", "12 ± 5", "10.0 ± 0.8", "10.0 ± 0.8"]


def test_one_measured_step_says_nothing_of_how_many_warm_up_steps_are_enough():
    one = {phase: times[:1] for phase, times in STEADY.items()}
    text = answered(timed(Made(mode="forward_backward"), SLOW, one))
    assert "Steps vary too much to say" in text and "known only to within an unknown share" in text
