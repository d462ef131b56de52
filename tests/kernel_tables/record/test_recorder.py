"""The window of one process: what it holds, what it leaves to the program, and where it meets other ranks."""

import multiprocessing
import os
import sqlite3
import time
from collections import Counter
from functools import partial

import pytest
import torch
from torch import nn
from torch.autograd import profiler as torch_profiler

import kernel_tables
from kernel_tables.record.handover import Notes, read_notes
from kernel_tables.record.keeping import Recording, write_captures
from kernel_tables.record.profilers import END_FUNCTION, START_FUNCTIONS, Ranks, TorchProfiler
from kernel_tables.record.ranges import AddedRanges
from kernel_tables.record.recorder import Recorder

OWN = Recording(os.getpid(), by_nsys=False, torch_version=torch.__version__)


def make_recorder(folder, profiler=None, ranges=None):
    notes = Notes(folder)
    ranges = ranges or AddedRanges(has_modules=False, has_steps=False, to_nvtx=False)
    return Recorder(notes, Ranks(notes), profiler or TorchProfiler(), ranges)


def events_of(folder):
    return [note["event"] for note in read_notes(folder)]


@pytest.fixture
def window(tmp_path):
    """A window of PyTorch's profiler, open in this process."""
    profiler = TorchProfiler()
    recorder = make_recorder(tmp_path, profiler)
    recorder.open()
    assert recorder.is_open
    yield recorder, profiler, tmp_path
    recorder.close()


def test_the_counts_and_the_time_of_operators_are_those_of_the_profilers_own_averages(window):
    recorder, profiler, folder = window
    model, x = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32)), torch.randn(8, 32)
    for _ in range(3):
        model(x).square().mean().backward()
    recorder.close()
    (kept,) = write_captures(folder, folder / "kept.sqlite", [OWN])
    with kernel_tables.read(kept) as profile:
        kernels = profile.kernels().groupby("kernel")["launches"].sum().to_dict()
        total_ns = profile.kernels()["total_ns"].sum()
    # the rest are autograd's nodes, which launch nothing; "detach" is the inner half of aten::detach
    own = [one for one in profiler._profile.key_averages() if one.key.startswith(("aten::", "detach"))]
    assert total_ns == pytest.approx(1000 * sum(one.self_cpu_time_total for one in own), rel=1e-4)
    outermost = Counter(
        event.name for event in profiler._profile.function_events
        if event.name.startswith("aten::") and not (event.cpu_parent and event.cpu_parent.name.startswith("aten::"))
    )  # fmt: skip
    assert kernels == outermost


def test_a_file_that_appeared_meanwhile_is_not_written_over_and_a_full_disk_leaves_nothing(window, monkeypatch):
    recorder, _, folder = window
    torch.ones(2) + torch.ones(2)
    recorder.close()
    (folder / "kept.sqlite").write_text("precious")
    (kept,) = write_captures(folder, folder / "kept.sqlite", [OWN])
    assert (kept.name, (folder / "kept.sqlite").read_text()) == ("kept-2.sqlite", "precious")
    connect = sqlite3.connect

    def connect_to_full_disk(path, **options):
        database = connect(path, **options)
        database.execute("PRAGMA max_page_count = 3")
        return database

    monkeypatch.setattr(sqlite3, "connect", connect_to_full_disk)
    (why,) = write_captures(folder, folder / "full.sqlite", [OWN])
    assert "full.sqlite: No space left on device; check" in str(why) and not list(folder.glob("*full*"))


def test_a_window_that_cannot_open_while_the_program_profiles_itself_opens_later(tmp_path, monkeypatch):
    for name in (*START_FUNCTIONS, END_FUNCTION):
        monkeypatch.setattr(torch_profiler, name, getattr(torch_profiler, name))
    monkeypatch.setattr(TorchProfiler, "_leave_profiler", TorchProfiler._leave_profiler)
    recorder = make_recorder(tmp_path, profiler := TorchProfiler())
    profiler.watch_program(partial(recorder.close, by_profile=True))
    with torch_profiler.profile(use_kineto=True):
        recorder.open()
        recorder.open()
        assert not recorder.is_open
    recorder.open()
    recorder.close()
    assert events_of(tmp_path) == ["profile", "open", "closed", "saved"]


def test_what_fails_in_the_recorder_is_noted_and_never_raised_in_the_program(tmp_path):
    class Failing(AddedRanges):
        def begin(self):
            raise KeyError("a model that hides its parts")

    recorder = make_recorder(tmp_path, ranges=Failing(has_modules=False, has_steps=False, to_nvtx=False))
    recorder.open()
    assert not torch.autograd._profiler_enabled()
    assert read_notes(tmp_path)[-1]["reason"] == "KeyError: 'a model that hides its parts'"
    recorder = make_recorder(tmp_path / "gone")  # the command has ended
    recorder.open()
    recorder.close()
    assert not recorder.is_open and not (tmp_path / "gone").exists()


def test_a_profiler_that_cannot_stop_is_ended_all_the_same(window, monkeypatch):
    recorder, profiler, folder = window

    def fail(self, *error):
        raise RuntimeError("CUDA error: device-side assert triggered")  # while it waits for the GPU

    monkeypatch.setattr(type(profiler._profile), "__exit__", fail)
    recorder.close()
    assert events_of(folder)[-1] == "lost" and not torch.autograd._profiler_enabled()


def test_no_window_opens_or_closes_inside_a_backward_pass(tmp_path):
    recorder, weight, seen = make_recorder(tmp_path), torch.ones(1, requires_grad=True), []

    def step(_):
        recorder.open()
        recorder.close()
        seen.append((recorder.is_waiting, recorder.is_open))

    handle = weight.register_post_accumulate_grad_hook(step)
    weight.sum().backward()
    recorder.open()
    weight.sum().backward()
    handle.remove()
    recorder.close()
    assert seen == [(True, False), (False, True)]


def be_a_rank(folder, number, late_s, order):
    """What a process does that is one of two ranks, and comes late to where it meets the other."""
    ranks = Ranks(Notes(folder))
    ranks.run, ranks._count = "a run", 2
    time.sleep(late_s)
    for point in ("start", "stop"):
        order.put((time.monotonic(), f"comes to {point}", number))
        ranks.call_once(point, lambda point=point: order.put((time.monotonic(), point, number)))
        order.put((time.monotonic(), f"leaves {point}", number))


def run_ranks(folder, *late_s):
    """What ranks did, in the order of time."""
    context = multiprocessing.get_context("fork")
    order = context.SimpleQueue()
    started = [context.Process(target=be_a_rank, args=(folder, *late, order)) for late in enumerate(late_s)]
    for process in started:
        process.start()
    for process in started:
        process.join(60)
    assert [process.exitcode for process in started] == [0] * len(started)
    events = []
    while not order.empty():
        events.append(order.get())
    return [event for _, *event in sorted(events)]


def test_one_rank_acts_for_all_once_all_have_come_and_all_wait_for_it(tmp_path):
    events = run_ranks(tmp_path, 0.0, 0.3)
    for point in ("start", "stop"):
        (index,) = [index for index, (event, _) in enumerate(events) if event == point]
        assert {number for event, number in events[:index] if event == f"comes to {point}"} == {0, 1}
        assert not [number for event, number in events[:index] if event == f"leaves {point}"]


def test_a_rank_that_does_not_come_is_not_waited_for_for_ever_and_a_process_that_is_none_meets_nobody(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("kernel_tables.record.profilers.RANK_WAIT_S", 0.2)
    assert ["leaves stop", 0] in run_ranks(tmp_path, 0.0)
    called, alone = [], tmp_path / "alone"
    Ranks(Notes(alone)).call_once("start", lambda: called.append(os.getpid()))
    assert (called, alone.exists()) == ([os.getpid()], False)
