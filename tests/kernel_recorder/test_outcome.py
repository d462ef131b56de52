"""What is said of a recording, from the notes that the program's processes left."""

import pytest

from kernel_recorder.in_process.handover import NSYS, PROGRAM, RANGE, SECONDS, Settings
from kernel_recorder.nothing_recorded import missing_recording_reason
from kernel_recorder.outcome import Outcome
from kernel_recorder.program import ProgramEnd
from kernel_recorder.remarks import (
    cost_sentence,
    remarks,
    slowdown_sentence,
    unrecorded_processes_sentence,
    window_phrase,
)

OPENED = {"event": "open", "pid": 7, "first": 6, "start_s": 0.25, "torch": "2.13", "has_steps": True}
CLOSED = {"event": "closed", "pid": 7, "done": 3, "stop_s": 0.5, "step_before_s": 0.01, "step_within_s": 0.012}
SAVED = {"event": "saved", "pid": 7, "save_s": 1.0}
WHOLE = [OPENED, CLOSED, SAVED]


def outcome(*notes, returncode=0, **settings):
    return Outcome(Settings(**settings), list(notes), ProgramEnd(returncode))


def test_a_whole_recording_says_what_it_holds_and_what_it_cost():
    recording = outcome(*WHOLE)
    assert recording.has_recording
    assert window_phrase(recording) == "steps 6 to 8 of process 7, by PyTorch's profiler"
    assert "".join(cost_sentence(recording)) == (
        "recording took 1.75 s of the program's time: 250 ms to begin, 500 ms to stop, 1.00 s to write;"
        " steps take 1.20 times as long in the window as before it"
    )
    assert (list(remarks(recording)), recording.expected_steps) == ([], 3)


@pytest.mark.parametrize(
    ("settings", "done", "recorded"),
    [
        ({}, 1, "step 6"),
        ({"opened": {"by": "module", "name": "GPT\x1b"}}, 3, "calls 6 to 8 of GPT\\x1b"),
        ({"window": RANGE, "range": "train\x1b"}, 2, "instances 6 to 7 of range 'train\\x1b'"),
        ({"window": SECONDS, "duration_s": 2.5}, 0, "2.5 s"),
        ({"window": PROGRAM}, 0, "cudaProfilerStart to cudaProfilerStop"),
    ],
)
def test_every_window_is_named(settings, done, recorded):
    opened = OPENED | settings.pop("opened", {})
    recording = outcome(opened, CLOSED | {"done": done}, SAVED, **settings)
    assert window_phrase(recording) == f"{recorded} of process 7, by PyTorch's profiler"


def test_a_window_that_opened_at_the_capture_of_a_graph_says_that_more_than_the_steps_was_recorded():
    opened = {name: value for name, value in OPENED.items() if name != "first"}
    steps = {"event": "steps", "pid": 7, "first": 6, "by": "graph", "name": "a CUDA graph"}
    recording = outcome(opened, steps, CLOSED, SAVED)
    assert recording.has_prelude and "the capture begins earlier" in "".join(remarks(recording))
    assert not outcome(opened, steps, CLOSED | {"done": 0}, SAVED).has_prelude
    assert not outcome(*WHOLE).has_prelude


def test_a_program_that_ends_in_the_window_keeps_what_there_is_and_expects_the_steps_that_it_ended():
    recording = outcome(OPENED, CLOSED | {"done": 1, "ended": True, "error": "KeyboardInterrupt"}, SAVED, returncode=-2)
    assert recording.has_recording
    (remark,) = remarks(recording)
    assert remark == "the program ended inside the window (KeyboardInterrupt); what was recorded until then is kept"
    assert (recording.expected_steps, recording.ended_in_step) == (1, True)
    assert window_phrase(recording) == "step 6 and a part of step 7 of process 7, by PyTorch's profiler"


@pytest.mark.parametrize(
    ("closed", "recorded"),
    [
        ([CLOSED | {"done": 0, "ended": True}], "a part of step 6"),
        ([], "from step 6 until the program ended"),
    ],
)
def test_a_program_that_ends_in_the_first_step_of_the_window_has_no_whole_step(closed, recorded):
    recording = outcome(OPENED, *closed, SAVED)
    assert window_phrase(recording) == f"{recorded} of process 7, by PyTorch's profiler"
    assert recording.ended_in_step


def test_a_program_with_ranges_of_its_own_ends_in_no_range_of_the_recorder():
    assert not outcome(OPENED | {"has_steps": False}, CLOSED | {"ended": True}, SAVED).ended_in_step


def test_a_program_killed_in_the_window_leaves_nothing_of_pytorchs_profiler_and_all_of_nsys():
    recording = outcome(OPENED, returncode=-9)
    assert not recording.has_recording
    assert "was ended by SIGKILL before PyTorch's profiler wrote its data" in missing_recording_reason(recording)
    assert outcome(OPENED, returncode=-9, profiler=NSYS).has_recording


@pytest.mark.parametrize(
    ("notes", "reason"),
    [
        ([{"event": "old_python", "version": "3.9.2"}], "the program's Python is 3.9.2, and the recorder needs 3.11"),
        ([], "no Python of the program loaded the recorder"),
        ([{"event": "python"}], "the program did not import PyTorch"),
        ([{"event": "python"}, {"event": "torch"}], "the program made an unknown number"),
        (
            [{"event": "python"}, {"event": "torch"}, {"event": "exit", "reached": 2}, {"event": "exit", "reached": 0}],
            "the window starts after step 5, and the program made 2;",
        ),
        (
            [{"event": "python"}, {"event": "torch"}, {"event": "exit", "reached": 0}],
            "the program took no step of a PyTorch optimizer, and called no model; record for a fixed time with",
        ),
        ([{"event": "refused", "reason": "CUPTI\x1b is taken"}], "could not record: CUPTI\\x1b is taken"),
        ([OPENED, {"event": "lost", "reason": "the disk is full"}], "could not record: the disk is full"),
    ],
)
def test_why_there_is_no_recording_is_told(notes, reason):
    recording = outcome(*notes)
    assert not recording.has_recording
    assert reason in missing_recording_reason(recording)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"window": RANGE, "range": "stepp", "skip": 0}, "instance 1 of range 'stepp', and the program opened 0"),
        ({"window": SECONDS, "duration_s": 1, "delay_s": 60}, "the program called no module of PyTorch"),
        ({"window": PROGRAM}, "the program did not call cudaProfilerStart through PyTorch"),
    ],
)
def test_a_window_that_is_never_reached_says_what_it_waited_for(settings, reason):
    notes = [{"event": "python"}, {"event": "torch"}, {"event": "exit", "reached": 0}]
    assert reason in missing_recording_reason(outcome(*notes, **settings))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"delay_s": 60}, "the program ended within the 60 s of --after"),
        ({"profiler": NSYS}, "or it did not use the GPU"),
    ],
)
def test_a_time_that_begins_after_the_program_says_what_it_waited_for(settings, reason):
    notes = [{"event": "python"}, {"event": "torch"}, {"event": "exit", "reached": 1}]
    assert reason in missing_recording_reason(outcome(*notes, window=SECONDS, duration_s=1, **settings))


def test_what_the_program_repeated_is_told_where_it_was_too_little():
    repeated = [["optimizer", "Adam", 2], ["module", "GPT", 4]]
    notes = [{"event": "python"}, {"event": "torch"}, {"event": "exit", "reached": 4, "repeated": repeated}]
    assert "and the program made 4 (2 steps of Adam, 4 calls of GPT)" in missing_recording_reason(outcome(*notes))


def test_an_optimizer_that_takes_no_step_is_told_with_what_records_its_program():
    exit_ = {"event": "exit", "reached": 4, "repeated": [["module", "GPT", 4]], "has_optimizer": True}
    recording = outcome({"event": "python"}, {"event": "torch"}, exit_)
    assert "an optimizer, which changed no weights between calls of a model" in missing_recording_reason(recording)


@pytest.mark.parametrize(
    ("steps", "settings", "advice"),
    [
        (4, {}, "the program took 4 optimizer steps after these calls; --skip 3 records steps instead"),
        (40, {"profiler": NSYS}, "40 optimizer steps after these calls; --skip N, with N above the number of these"),
    ],
)
def test_calls_before_an_optimizer_are_told_from_its_steps(steps, settings, advice):
    exit_ = {"event": "exit", "pid": 7, "repeated": [["module", "GPT", 12], ["optimizer", "Adam", steps]]}
    recording = outcome(OPENED | {"by": "module", "name": "GPT"}, CLOSED, SAVED, exit_, **settings)
    assert advice in "".join(remarks(recording))


def test_steps_that_are_longer_in_the_window_are_told():
    slower = outcome(OPENED, CLOSED | {"step_within_s": 0.02}, SAVED)
    (sentence,) = slowdown_sentence(slower)
    assert "step" not in "".join(cost_sentence(slower)), "it is said once"
    assert sentence.startswith("steps take 2.00 times as long in the window as before it")
    assert list(slowdown_sentence(outcome(OPENED, CLOSED | {"step_within_s": 0.011}, SAVED))) == []


def test_a_folder_that_was_deleted_is_the_reason():
    deleted = Outcome(Settings(), [], ProgramEnd(0), folder_is_gone=True)
    assert "was deleted while it ran" in missing_recording_reason(deleted)


def test_a_window_that_a_profile_of_the_program_ends_is_cut_and_says_so():
    recording = outcome(OPENED, CLOSED | {"done": 1, "profile": True}, SAVED)
    assert window_phrase(recording) == "step 6 and a part of step 7 of process 7, by PyTorch's profiler"
    assert recording.ended_in_step
    assert "the program started PyTorch's profiler itself, so this window ended there" in "".join(remarks(recording))


def test_a_window_that_opened_at_a_capture_has_the_facts_of_its_steps_and_says_where_it_had_none():
    early = {name: value for name, value in OPENED.items() if name != "first"}
    steps = {"event": "steps", "pid": 7, "first": 4, "by": "graph", "name": "a CUDA graph"}
    recording = outcome(early, steps, CLOSED, SAVED)
    assert window_phrase(recording) == "replays 4 to 6 of a CUDA graph of process 7, by PyTorch's profiler"
    recording = outcome(early, CLOSED | {"done": 0, "ended": True}, SAVED)
    phrase = "from the first capture of a CUDA graph until the program ended, without a step"
    assert window_phrase(recording).startswith(phrase)
    assert not recording.ended_in_step


@pytest.mark.parametrize(
    ("profiler", "remark"), [(NSYS, "so that profile may lack kernels"), ("torch", "the window starts later")]
)
def test_a_profile_of_the_program_outside_the_window_is_told(profiler, remark):
    assert remark in "".join(remarks(outcome({"event": "profile"}, *WHOLE, profiler=profiler)))


def test_the_facts_of_a_window_are_kept_with_it():
    contents = {"passes": [{"GPT forward 4x8": 1}], "compilations": 2}
    recorded = outcome(OPENED | {"by": "optimizer", "name": "Adam"}, CLOSED | {"contents": contents}, SAVED)
    kept = recorded.recording()
    assert kept.window_facts == {
        "by": "optimizer", "name": "Adam", "first": 6, "done": 3, **contents, "step_before_s": 0.01,
        "step_within_s": 0.012,
    }  # fmt: skip


def test_processes_that_came_too_late_are_counted_once_each():
    late = [{"event": "elsewhere", "pid": pid} for pid in (8, 9, 9)]
    (remark,) = unrecorded_processes_sentence(outcome(*WHOLE, *late))
    assert remark == "2 further processes came to such a window; the first was recorded"


def test_a_rank_whose_run_is_not_known_is_told():
    unknown = {"event": "no_rank", "pid": 7, "reason": "RuntimeError: a store\x1b that cannot"}
    (remark,) = remarks(outcome(unknown, *WHOLE))
    assert remark.endswith("distributed run is unknown (RuntimeError: a store\\x1b that cannot)")


def test_a_program_that_was_ended_on_request_is_said_to_be_ended_by_its_signal():
    end = ProgramEnd(-2, by_request=True)
    assert (end.exit_status, end.phrase) == (0, "was ended by SIGINT")
