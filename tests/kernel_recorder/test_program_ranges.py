"""The ranges that a program opens itself are heard, by whatever call, and become ranges of the profiler at hand."""

import nvtx
import pytest
import torch
from torch.autograd.profiler import profile, record_function

from kernel_recorder.in_process import program_ranges
from kernel_recorder.in_process.program_ranges import ProgramRanges, nvtx_text
from kernel_tables.kineto.names import decoded


class Heard(list):
    """What a window is told."""

    def before_range(self, name, *, of_torch):
        self.append(("of torch " if of_torch else "") + f"enter {name}")

    def after_range(self, name, optimizer=None):
        self.append(f"left {name}")


@pytest.fixture
def listening(monkeypatch):
    """A function that listens to this process until the test ends, with NVTX as on a GPU."""
    pushed = []
    for owner, names in (
        (record_function, ("__enter__", "__exit__")),
        (torch.cuda.nvtx, ("range_push", "range_pop")),
        (nvtx, ("push_range", "pop_range")),
        (nvtx.annotate, ("__enter__", "__exit__", "__call__")),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    functions = ((torch.cuda.nvtx, "range_push", "range_pop"), (program_ranges, "ORIGINAL_PUSH", "ORIGINAL_POP"))
    for owner, push, pop in functions:
        monkeypatch.setattr(owner, push, pushed.append)
        monkeypatch.setattr(owner, pop, lambda: pushed.append("pop"))

    def listen(*, to_nvtx=False):
        heard = Heard()
        ranges = ProgramRanges(heard, to_nvtx=to_nvtx)
        ranges.watch_torch()
        ranges.watch_nvtx(nvtx)
        return heard

    listen.pushed = pushed
    return listen


def open_every_kind():
    with record_function("one"):
        pass
    with torch.cuda.nvtx.range("two {}", 2):
        pass
    with nvtx.annotate("three"):
        pass
    nvtx.push_range("four")
    nvtx.pop_range()

    @nvtx.annotate("five")
    def decorated():
        return "result"

    assert decorated() == "result"


EVERY_KIND = ["one", "two 2", "three", "four", "five"]


@pytest.mark.parametrize("to_nvtx", [False, True])
def test_ranges_are_heard_once_each_by_whatever_call_they_are_opened(listening, to_nvtx):
    heard = listening(to_nvtx=to_nvtx)
    open_every_kind()
    assert heard == [f"{what} {name}" for name in EVERY_KIND for what in ("enter", "left")]


def test_pytorchs_profiler_sees_them_all_with_their_names(listening):
    listening()
    with profile(use_kineto=True) as recording:
        open_every_kind()
        with record_function('n\u00e9"w'):
            pass
    events = [event.name() for event in recording.kineto_results.events()]
    assert [decoded(name) for name in events] == [*EVERY_KIND, 'n\u00e9"w']


def test_under_nsys_record_function_is_a_range_of_nvtx(listening):
    listening(to_nvtx=True)
    with record_function("one"), torch.cuda.nvtx.range("two"):
        pass
    assert listening.pushed == ["one", "two", "pop", "pop"]


def test_a_name_keeps_itself_for_whoever_reads_it_inside(listening):
    listening()
    with record_function('n\u00e9"w') as opened:
        assert opened.name == 'n\u00e9"w'


def test_a_range_that_raises_is_left_too(listening):
    heard = listening()
    with pytest.raises(ValueError), record_function("fails"):
        raise ValueError
    assert heard == ["enter fails", "left fails"]


def test_ranges_of_pytorch_itself_are_told_apart(listening):
    heard = listening()
    parameter = torch.nn.Parameter(torch.ones(1))
    torch.optim.SGD([parameter]).step()
    assert heard == ["of torch enter Optimizer.step#SGD.step", "left Optimizer.step#SGD.step"]


def test_what_nvtx_cannot_take_is_written_out():
    assert nvtx_text("a\0b\ud800") == "a\\0b\\ud800"
