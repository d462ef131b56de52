"""What recordings hold: of a real program under PyTorch's profiler, and of windows that were opened in this process."""

import os
import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from torch import nn

from kernel_recorder.command import _print_contents
from kernel_recorder.in_process.handover import Notes, read_notes
from kernel_recorder.in_process.profilers import END_FUNCTION, START_FUNCTIONS, NsysProfiler, TorchProfiler
from kernel_recorder.in_process.ranks import RankCoordinator
from kernel_recorder.in_process.recorder import Recorder
from kernel_recorder.keeping import Recording, name_unfinished_step, write_captures
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic

OWN = Recording(os.getpid(), by_nsys=False, torch_version=torch.__version__)
TRAIN = """
import os, torch
from torch import nn

STRANGE = 'a"b\\\\\\n\\x1b[31m'


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module(STRANGE, nn.Linear(8, 8))
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x):
        x = self._modules[STRANGE](x)
        for block in self.blocks:
            x = block(x)
        return x


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, x in enumerate(torch.utils.data.DataLoader(torch.randn(32, 8), batch_size=4, num_workers=1)):
    with torch.profiler.record_function('n\\u00e9"w\\u202e'):
        model(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("trained", number + 1, os.environ["SECRET"])
"""


def columns(capture, table):
    with Trace(capture) as trace:
        return getattr(trace, table)()


def test_a_training_script_is_recorded_with_its_modules_and_tells_nothing_of_the_host(record, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "canary-s3cr3t")
    done = record(TRAIN, "--skip", "2", "--steps", "3", "--ranges", "modules")
    assert (done.status, done.out) == (0, "trained 8 canary-s3cr3t\n")
    assert "recording.sqlite: steps 3 to 5 of process" in done.err
    assert "recording took" in done.err
    assert "no GPU was used: a kernel is an outermost operator of PyTorch" in done.err
    ranges = columns(done.capture, "ranges").set_index("range")
    strange = 'a"b\\\n\x1b[31m'
    # three steps: a module forward and backward, three layers of one list
    assert ranges["instances"].to_dict() == {
        "step": 3, "forward": 3, "né\"w\u202e": 3, "Model": 6, "blocks": 18, strange: 6, "backward": 3,
        "Optimizer.step#SGD.step": 3,
        "Optimizer.zero_grad#SGD.zero_grad": 3, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": 3,
    }  # fmt: skip
    with Trace(done.capture) as trace:
        assert [finding for finding in trace.check(expected_steps=3) if finding.severity == "error"] == []
        kernels = trace.kernels()
        activities = trace.activities()
    # every nanosecond is in one path, and those of the model's modules are all inside the model
    assert kernels["total_ns"].sum() == activities["duration_ns"].sum() > 0
    of_model = kernels[kernels["range"].str.contains("> Model", regex=False)]
    inside = of_model[of_model["range"].str.contains('> Model > (?:blocks|a"b)', regex=True)]
    assert ranges.loc["Model", "gpu_time_ns"] == of_model["total_ns"].sum()
    assert ranges.loc["blocks", "gpu_time_ns"] + ranges.loc[strange, "gpu_time_ns"] == inside["total_ns"].sum()
    told = done.capture.read_bytes()
    for secret in (b"canary", b"s3cr3t", str(tmp_path).encode()):
        assert secret not in told


CRASH = """
import multiprocessing, torch

def train():
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        with torch.profiler.record_function("forward"):
            loss = model(torch.randn(4, 8)).sum()
        loss.backward()
        optimizer.step()
    raise torch.OutOfMemoryError("made up")

child = multiprocessing.get_context("fork").Process(target=train)
child.start()
child.join()
print("child ended with", child.exitcode)
train()
"""


def test_a_crash_in_the_window_keeps_what_was_recorded_and_the_first_process_is_the_one(record):
    done = record(CRASH, "--skip", "1", "--steps", "9", "-o", "crash.sqlite")
    assert (done.status, done.out) == (1, "child ended with 1\n")
    assert "OutOfMemoryError: made up" in done.err
    assert "the program ended inside the window; what was recorded until then is kept" in done.err
    assert "1 further process came to such a window; the first was recorded" in done.err
    assert "crash.sqlite: steps 2 to 4 and a part of step 5 of process" in done.err
    # it has a range of its own, so its modules get none, and its steps do
    ranges = columns("crash.sqlite", "ranges").set_index("range")["instances"].to_dict()
    assert ranges == {"step": 3, "step (unfinished)": 1, "forward": 3, "Optimizer.step#SGD.step": 3}


def test_the_step_in_which_a_program_crashes_is_no_step_of_any_mean(record):
    done = record(CRASH, "--skip", "1", "--steps", "9", "--ranges", "modules")
    ranges = columns(done.capture, "ranges").set_index("range")
    assert ranges["instances"].filter(like="step").to_dict() == {
        "step": 3, "Optimizer.step#SGD.step": 3, "step (unfinished)": 1,
    }  # fmt: skip
    assert ranges.loc["step", "kernels"] % 3 == 0
    with Trace(done.capture) as trace:
        assert trace.check(expected_steps=3) == []


@pytest.mark.parametrize("registered", [False, True])
def test_of_steps_in_each_other_the_outer_one_that_ends_last_is_the_unfinished_one(tmp_path, registered):
    made = Synthetic().range("step", 0, 100, registered=registered)
    for start, end in ((100, 200), (110, 190), (110, 200)):
        made.range("step", start, end, registered=registered)
    capture = made.kernel("gemm", at=150).write(tmp_path / "capture.sqlite")
    name_unfinished_step(capture)
    assert columns(capture, "range_tree")["range"].tolist() == [
        "step (unfinished)", "step (unfinished) > step", "step (unfinished) > step > step", "step",
    ]  # fmt: skip


def test_a_capture_of_a_crash_that_lost_all_ranges_stays_as_it_is(tmp_path):
    capture = (
        Synthetic().kernel("gemm", at=150).write(tmp_path / "capture.sqlite")
    )  # as nsys, without a table of ranges
    before = capture.read_bytes()
    name_unfinished_step(capture)
    assert capture.read_bytes() == before


def test_where_no_range_was_open_the_kernels_are_printed(tmp_path, capsys):
    made = Synthetic().metadata("CAPTURE_BACKEND", "torch").kernel("ampere_sgemm_128x64_tn", at=1)
    facts = {"expected_steps": None, "was_cut": False, "has_prelude": False}
    facts |= {"window_facts": dict, "step_times_s": lambda: (None, None)}
    outcome = SimpleNamespace(settings=SimpleNamespace(range=None), **facts)
    _print_contents(made.write(tmp_path / "capture.sqlite"), outcome, in_full=True)
    said = capsys.readouterr().err
    assert "sgemm 128×64 tn  (no range)" in said
    assert "warning: no range was open in the window" in said
    assert "error" not in said


class NoRanges:
    has_steps = False

    def begin(self):
        pass

    end = step_ends = step_begins = begin

    def facts(self):
        return {}


@pytest.fixture
def window(tmp_path):
    """A window of PyTorch's profiler, open in this process."""
    profiler = TorchProfiler()
    recorder = Recorder(Notes(tmp_path), RankCoordinator(Notes(tmp_path)), profiler, NoRanges())
    assert recorder.open()
    yield recorder, profiler, tmp_path
    recorder.close()


def test_the_time_of_operators_is_that_of_the_profilers_own_averages(window):
    recorder, profiler, folder = window
    model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)), torch.randn(8, 32)
    for _ in range(3):
        model(x).square().mean().backward()
    recorder.close()
    (kept,) = write_captures(folder, folder / "kept.sqlite", [OWN])
    averages = profiler._profile.key_averages()
    # the rest are autograd's nodes, which launch nothing; "detach" is the inner half of aten::detach
    expected_us = sum(one.self_cpu_time_total for one in averages if one.key.startswith(("aten::", "detach")))
    assert columns(kept, "kernels")["total_ns"].sum() == pytest.approx(expected_us * 1000, rel=1e-4)


def test_a_window_that_records_nothing_is_told_and_leaves_no_file(window):
    recorder, _, folder = window
    recorder.close()
    (why,) = write_captures(folder, folder / "kept.sqlite", [OWN])
    assert "nothing of PyTorch ran in the window" in str(why)
    assert not list(folder.glob("*kept*"))


def test_where_the_program_profiles_itself_it_loses_nothing_and_the_reason_is_noted(tmp_path):
    recorder = Recorder(Notes(tmp_path), RankCoordinator(Notes(tmp_path)), TorchProfiler(), NoRanges())
    with torch.autograd.profiler.profile(use_kineto=True) as of_the_program:
        assert not recorder.open()
        torch.ones(2)
    assert "aten::ones" in [event.name() for event in of_the_program.kineto_results.events()]
    assert [(note["event"], note["reason"]) for note in read_notes(tmp_path)] == [
        ("refused", "the program is using PyTorch's profiler itself; record it by nsys, or without that")
    ]


@pytest.mark.parametrize("is_planned", [False, True])
def test_a_program_that_profiles_itself_inside_the_window_ends_it_and_both_keep_their_events(
    window, monkeypatch, is_planned
):
    recorder, profiler, folder = window
    for name in (*START_FUNCTIONS, END_FUNCTION):
        monkeypatch.setattr(torch.autograd.profiler, name, getattr(torch.autograd.profiler, name))
    profiler.watch_program(recorder.leave_profiler)
    torch.zeros(2)
    planned = torch.profiler.schedule(wait=0, warmup=1, active=1) if is_planned else None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], schedule=planned) as of_the_program:
        assert (recorder.is_open, profiler.is_taken) == (False, True)
        of_the_program.step()
        torch.ones(2)
    assert not profiler.is_taken
    names = [event.name for event in of_the_program.events()]
    assert ("aten::ones" in names, "aten::zeros" in names) == (True, False)
    closed, saved = read_notes(folder)[-2:]
    assert (closed["event"], closed["profile"], saved["event"]) == ("closed", True, "saved")
    assert "aten::zeros" in next(folder.glob("trace-*.json")).read_text()


def test_under_nsys_a_profile_of_the_program_is_noted_once(tmp_path, monkeypatch):
    for name in START_FUNCTIONS:
        monkeypatch.setattr(torch.autograd.profiler, name, getattr(torch.autograd.profiler, name))
    notes = Notes(tmp_path)
    profiler = NsysProfiler(RankCoordinator(notes))
    profiler.watch_program(Recorder(notes, RankCoordinator(notes), profiler, NoRanges()).note_profile)
    for _ in range(2):
        with torch.autograd.profiler.profile(use_kineto=True):
            torch.ones(2)
    assert [note["event"] for note in read_notes(tmp_path)] == ["profile"]


def test_a_window_that_cannot_open_while_the_program_profiles_itself_opens_later(tmp_path, monkeypatch):
    for name in (*START_FUNCTIONS, END_FUNCTION):
        monkeypatch.setattr(torch.autograd.profiler, name, getattr(torch.autograd.profiler, name))
    profiler = TorchProfiler()
    recorder = Recorder(Notes(tmp_path), RankCoordinator(Notes(tmp_path)), profiler, NoRanges())
    profiler.watch_program(recorder.leave_profiler)
    with torch.autograd.profiler.profile(use_kineto=True):
        assert not recorder.open()
        assert not recorder.open()
    assert recorder.open()
    recorder.close()
    assert [note["event"] for note in read_notes(tmp_path)] == ["profile", "open", "closed", "saved"]


def test_what_fails_in_the_recorder_is_noted_and_never_raised_in_the_program(tmp_path):
    class Failing(NoRanges):
        def begin(self):
            raise KeyError("a model that hides its parts")

    recorder = Recorder(Notes(tmp_path), RankCoordinator(Notes(tmp_path)), TorchProfiler(), Failing())
    assert not recorder.open()
    assert not torch.autograd._profiler_enabled()
    assert read_notes(tmp_path)[-1]["reason"] == "KeyError: 'a model that hides its parts'"


def test_where_the_command_is_gone_the_program_goes_on(tmp_path):
    notes = Notes(tmp_path / "gone")
    recorder = Recorder(notes, RankCoordinator(notes), TorchProfiler(), NoRanges())
    assert not recorder.open()
    recorder.close()
    assert not (tmp_path / "gone").exists()


def test_a_second_process_finds_the_window_taken(tmp_path, monkeypatch):
    with monkeypatch.context() as of_another:
        of_another.setattr(os, "getpid", lambda: 1)
        assert Notes(tmp_path).claim()
    recorder = Recorder(Notes(tmp_path), RankCoordinator(Notes(tmp_path)), TorchProfiler(), NoRanges())
    assert not recorder.open()
    assert not recorder.is_open
    assert "elsewhere" in (tmp_path / "notes.jsonl").read_text()


def test_a_full_disk_is_told_and_leaves_nothing_half_written(window, monkeypatch):
    recorder, _, folder = window
    torch.ones(2) + torch.ones(2)
    recorder.close()

    def connected(path):
        database = plain(path)
        database.execute("PRAGMA max_page_count = 3")
        return database

    plain = sqlite3.connect
    monkeypatch.setattr("kernel_tables.kineto.capture.sqlite3.connect", connected)
    with pytest.raises(OSError, match="No space left on device"):
        write_captures(folder, folder / "kept.sqlite", [OWN])
    assert not list(folder.glob("*kept*"))


def test_a_file_that_appeared_meanwhile_is_not_written_over(window):
    recorder, _, folder = window
    torch.ones(2) + torch.ones(2)
    recorder.close()
    (folder / "kept.sqlite").write_text("precious")
    (kept,) = write_captures(folder, folder / "kept.sqlite", [OWN])
    assert (kept.name, (folder / "kept.sqlite").read_text()) == ("kept-2.sqlite", "precious")
    with closing(sqlite3.connect(kept)) as database:
        assert pd.read_sql("SELECT count(*) AS n FROM CUPTI_ACTIVITY_KIND_KERNEL", database)["n"][0] > 0
