"""The ranges that a program opens itself, translated for the profiler at hand; and those around compiled kernels."""

from types import SimpleNamespace
from urllib.parse import unquote

import nvtx
import pytest
import torch
from torch import nn
from torch.autograd.profiler import profile, record_function

from kernel_tables.record import ranges as ranges_module
from kernel_tables.record.ranges import ProgramRanges, module_chains, ranges_of_chains

OWN = (torch.cuda.nvtx, "range_push", "range_pop")


@pytest.fixture
def listening(monkeypatch):
    """A function that listens to this process until the test ends, with NVTX as on a GPU."""
    pushed = []
    annotate = (nvtx.annotate, "__enter__", "__exit__", "__call__")
    kineto = (record_function, "__enter__", "__exit__")
    for owner, *names in (OWN, (nvtx, "push_range", "pop_range"), annotate, kineto):
        for name in names:
            monkeypatch.setattr(owner, name, getattr(owner, name))
    for owner, push, pop in (OWN, (ranges_module, "ORIGINAL_PUSH", "ORIGINAL_POP")):
        monkeypatch.setattr(owner, push, pushed.append)
        monkeypatch.setattr(owner, pop, lambda: pushed.append("pop"))
    monkeypatch.setattr(ranges_module, "register_optimizer_step_pre_hook", lambda hook: None)

    def listen(*, to_nvtx=False):
        heard = []
        ranges = ProgramRanges(
            to_nvtx=to_nvtx, is_recording=lambda: True, after=lambda name, optimizer: heard.append(f"left {name}"),
            before=lambda name, of_torch: heard.append(f"{'of torch ' if of_torch else ''}enter {name}"),
        )  # fmt: skip
        ranges.watch_torch()
        ranges.watch_nvtx(nvtx)
        return heard

    listen.pushed = pushed
    return listen


def open_every_kind():
    with record_function('n\u00e9"w') as opened:
        assert opened.name == 'n\u00e9"w'  # for whoever reads it inside
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


EVERY_KIND = ['n\u00e9"w', "two 2", "three", "four", "five"]


@pytest.mark.parametrize("to_nvtx", [False, True])
def test_ranges_are_heard_once_each_by_whatever_call_they_are_opened(listening, to_nvtx):
    heard = listening(to_nvtx=to_nvtx)
    with profile(use_kineto=True) as recording:
        open_every_kind()
    assert heard == [f"{what} {name}" for name in EVERY_KIND for what in ("enter", "left")]
    names = [unquote(event.name().removeprefix("%=")) for event in recording.kineto_results.events()]
    assert names == EVERY_KIND if not to_nvtx else listening.pushed[:2] == [EVERY_KIND[0], "pop"]


def test_a_range_that_raises_is_left_too_and_those_of_pytorch_itself_are_told_apart(listening):
    heard = listening()
    with pytest.raises(ValueError), record_function("fails"):
        raise ValueError
    torch.optim.SGD([nn.Parameter(torch.ones(1))]).step()
    assert heard == [
        "enter fails", "left fails", "of torch enter Optimizer.step#SGD.step", "left Optimizer.step#SGD.step",
    ]  # fmt: skip


MODEL, BLOCK, OTHER_BLOCK, NORM, HEAD, WRAPPER = 1, 2, 3, 4, 5, 6
NAMES = {MODEL: "Net", BLOCK: "blocks", OTHER_BLOCK: "blocks", NORM: "blocks.norm", HEAD: "head", WRAPPER: "Net"}


@pytest.mark.parametrize(
    ("chains", "expected"),
    [
        ([(WRAPPER, MODEL, BLOCK, NORM)], ["Net", "blocks", "blocks.norm"]),
        ([(MODEL, BLOCK), (MODEL, BLOCK, NORM)], ["Net", "blocks", "blocks + blocks.norm"]),
        ([(MODEL, BLOCK, NORM), (MODEL, HEAD)], ["Net", "blocks.norm + head"]),
        ([(MODEL, BLOCK), (MODEL, OTHER_BLOCK)], ["Net", "blocks"]),
        ([(MODEL, 99), (99,)], ["Net"]),  # 99 has no name
        ([], []),
    ],
)
def test_a_kernel_is_in_the_modules_around_all_that_it_serves_and_in_their_set(chains, expected):
    assert [part.name for part in ranges_of_chains(tuple(chains), NAMES.get)] == expected


def test_an_operation_of_the_backward_pass_serves_the_modules_that_it_differentiates():
    forward = {"1": ("L['self']", None), "2@1": ("L['self'].blocks.0", None)}
    metas = [{"nn_module_stack": forward}, {"fwd_nn_module_stack": {"1": ()}, "nn_module_stack": forward}, {}]
    assert module_chains([], [SimpleNamespace(meta=meta) for meta in metas]) == ((1,), (1, 2))
    (_, first), (_, second) = (ranges_of_chains(((MODEL, block),), NAMES.get) for block in (BLOCK, OTHER_BLOCK))
    assert first.name == second.name and first != second  # a layer that follows another is another instance
