"""Where time is lost: sentences, tables, and remedies beside what was said of them."""

from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.questions.time_lost.document import FINDING_NAMES
from profile_grid.questions.time_lost.table import REMEDIES, time_lost
from profile_grid.tables.per_pass import Merged
from tests.profile_grid.made_up import Made, forward_kernels, merged
from tests.profile_grid.made_up_answers import summaries, told
from tests.profile_grid.test_answers import line_of, rendered


def found(code: str, percent: float) -> tuple:
    """A finding of the rule with this code, which takes so many percent of a step of 10 ms."""
    return (code, False, percent / 10, percent, "likely", f"{code} was found", "mend it", "{}", "{}")


ABSTAINS = ("wave_tail", True, None, None, "possible", "no counters", "measure", "{}", "{}")
SAVED = 1 - 67 / 989.4  # share of fp32 matrix multiplies that bf16 saves, by TFLOP/s in the data sheet of the H200
PLAIN = Made(kernels=forward_kernels(), unprofiled_ms=10.0, findings=(found("no_tensor_cores", 60.0), ABSTAINS))


def timed(ms: float, **changes) -> Made:
    """A run with a remedy, whose step takes this time; nothing is found in it."""
    return replace(PLAIN, unprofiled_ms=ms, findings=(ABSTAINS,), **changes)


def sentences(*runs: Made) -> str:
    return told("time_lost", list(runs))


def test_a_remedy_stands_beside_what_was_said_of_the_run_without_it():
    (row,) = summaries(PLAIN, timed(5.0, precision="tf32"))["predictions"].to_dict("records")
    assert (row["base_run"], row["remedy"], row["codes"]) == (PLAIN.name, "precision", "no_tensor_cores")
    figures = [row[name] for name in ("predicted_percent", "predicted_ms", "measured_percent", "measured_ms")]
    assert figures == pytest.approx([60.0 * SAVED, 6.0 * SAVED, 50.0, 5.0], rel=1e-4)
    assert row["holds"] is True


def test_a_gain_beyond_what_was_said_is_told():
    runs = PLAIN, timed(3.0, precision="tf32")
    assert summaries(*runs)["predictions"]["holds"].tolist() == [False]
    assert (
        "0 of 1 measured remedies saved no more than their bounds; clearly more was saved in small"
        " at context 512 in tf32, forward pass."
    ) in sentences(*runs)
    assert rendered(list(runs))["time_lost"].count("**no**") == 1


def test_idle_time_is_at_most_what_a_step_without_a_profiler_takes_beyond_the_gpus_own_time():
    made = replace(PLAIN, findings=(found("launch_bound", 70.0), found("no_tensor_cores", 60.0)))
    findings = summaries(made)["time_lost"].set_index("code")
    busy_ms = sum(kernel.time_us for kernel in PLAIN.kernels) / 1000
    assert list(findings.index) == ["no_tensor_cores", "launch_bound"]
    assert findings["unprofiled_ms"].tolist() == pytest.approx([6.0 * SAVED, 10.0 - busy_ms], rel=1e-4)
    assert findings.loc["launch_bound", "unprofiled_percent"] == pytest.approx(100 - 10 * busy_ms)
    assert findings["gain_ms"].tolist() == [6.0, 7.0]
    assert (
        "fp32 matrix multiplies without tensor cores: 5.59 ms (55.9 %); late launches: 0.198 ms (2.0 %)"
        in rendered([made])["time_lost"]
    )


def test_attention_in_one_kernel_is_a_remedy_and_attention_by_pytorch_in_many_is_none():
    runs = (PLAIN, timed(9.0, attention="math"), timed(8.0, attention="efficient"))
    assert summaries(*runs)["predictions"]["attention"].tolist() == ["efficient"]


def test_a_remedy_for_which_no_rule_spoke_is_said_to_gain_nothing():
    (row,) = summaries(PLAIN, timed(9.0, attention="flash"))["predictions"].to_dict("records")
    assert (row["codes"], row["predicted_percent"], row["holds"]) == ("", 0.0, False)


def test_a_larger_batch_is_judged_by_the_time_of_a_sequence():
    waiting = replace(PLAIN, kernels=forward_kernels(4000.0), findings=(found("launch_bound", 40.0),))
    (row,) = summaries(waiting, timed(15.0, batch_size=8))["predictions"].to_dict("records")
    assert (row["predicted_percent"], row["measured_percent"]) == pytest.approx((40.0, 25.0))


def test_a_larger_batch_on_several_gpus_is_scaling_and_no_remedy():
    two = replace(PLAIN, gpus=2, parallel="ddp")
    assert len(summaries(two, replace(timed(15.0, batch_size=8), gpus=2, parallel="ddp"))["predictions"]) == 0


def test_numbers_of_half_the_size_halve_what_no_rule_speaks_of():
    (row,) = summaries(PLAIN, timed(2.0, precision="bf16"))["predictions"].to_dict("records")
    assert row["predicted_percent"] == pytest.approx(50.0 + 60.0 * SAVED / 2, rel=1e-4)


def test_a_run_that_was_not_diagnosed_predicts_nothing():
    runs = [replace(PLAIN, findings=()), timed(5.0, precision="tf32")]
    assert len(summaries(*runs)["predictions"]) == 0


def test_where_there_are_counters_the_rules_that_need_them_speak_and_are_silent_no_more():
    other = replace(PLAIN, precision="bf16")
    tables = merged([PLAIN, other])
    counted = tables["runs"]["run"] == PLAIN.name
    tables["runs"].loc[counted, "counters_status"] = "complete"
    columns = tables["findings"].columns
    occupancy = pd.DataFrame([[*PLAIN.leading.values(), *found("low_occupancy", 70.0)]], columns=columns)
    tables["counter_findings"] = occupancy
    table = time_lost(Merged(tables))
    assert table.loc[table["run"] == PLAIN.name, "code"].tolist() == ["low_occupancy", "no_tensor_cores"]
    assert table.loc[table["run"] == other.name, "code"].tolist() == ["no_tensor_cores", "wave_tail"]


def test_every_rule_that_a_remedy_mends_is_there():
    from kernel_tables.diagnosis.rules import CODES

    assert {code for remedy in REMEDIES for code in remedy.codes} <= set(CODES)
    assert set(FINDING_NAMES) == set(CODES)  # each has words of its own, since a code is no subject of a sentence


def test_the_sentences_say_what_could_gain_most_and_what_cannot_be_told():
    text = sentences(PLAIN, timed(5.0, precision="tf32"))
    lead = "The largest finding costs at most 55.9 % of a step: fp32 matrix multiplies without tensor cores in 1"
    assert "Nothing is found in 1 of 2 runs." in text
    assert text.startswith(lead)
    assert "Not checked, for the reasons below: partly empty last waves of thread blocks." in text
    others = [("low_occupancy", *ABSTAINS[1:]), *((code, *ABSTAINS[1:5], "a CPU", "-", "{}", "{}") for code in "abcd")]
    assert "last waves of thread blocks and low occupancy; 4 rules." in sentences(
        replace(PLAIN, findings=(ABSTAINS, *others))
    )
    some = (
        PLAIN,
        replace(PLAIN, precision="tf32", findings=()),
        replace(PLAIN, precision="bf16", findings=PLAIN.findings[:1]),
    )
    assert "Not checked, for the reasons below: partly empty last waves of thread blocks in 1 of 2 runs." in sentences(
        *some
    )
    optimizer = ("unfused_optimizer", *ABSTAINS[1:])
    assert "an unfused optimizer" not in sentences(replace(PLAIN, findings=(*PLAIN.findings, optimizer))), "has none"
    trains = replace(PLAIN, mode="train_step", findings=(optimizer,))
    assert "Not checked, for the reasons below: an unfused optimizer." in sentences(trains)
    assert sentences(replace(PLAIN, findings=())) == "Not answered: no capture of these runs was diagnosed."
    assert sentences(replace(PLAIN, findings=(ABSTAINS,))).startswith("The diagnosis finds nothing in the only run.")


def test_the_document_shows_findings_silent_rules_and_remedies():
    text = rendered([PLAIN, timed(5.0, precision="tf32")])["time_lost"]
    assert "matrix multiplies without tensor cores: 5.59 ms (55.9 %)" in line_of(text, "small", "512", "forward pass")
    assert text.count("- partly empty last waves of thread blocks: no counters\n") == 1
    assert "5.59 (55.9 %) | " in text and text.count(" yes |") == 1


def test_a_smaller_batch_is_no_remedy():
    waiting = replace(PLAIN, kernels=forward_kernels(4000.0), findings=(found("launch_bound", 40.0),))
    assert len(summaries(waiting, timed(15.0, batch_size=8))["predictions"]) == 1
    assert len(summaries(waiting, timed(5.0, batch_size=2))["predictions"]) == 0
