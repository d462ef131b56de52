"""The names of a process's models, what their calls are, and modules that hide what they consist of."""

import gc

import pytest
import torch
from torch import nn

from kernel_recorder.in_process.module_ranges import (
    DECODE,
    FORWARD,
    INFERENCE,
    PREFILL,
    CallLog,
    ModuleRanges,
    models_of_this_process,
    numbered_models,
)
from kernel_recorder.in_process.recorder import Compilations, compilations_since
from range_marks.marker import Emitter, Marker


class Hiding(nn.Module):
    """A module that does not say what it consists of."""

    def __init__(self):
        super().__init__()
        self.part = nn.Linear(2, 2)

    def children(self):
        raise RuntimeError("hidden")

    named_children = parameters = children

    def forward(self, x):
        return self.part(x)


class Net(nn.Sequential):
    pass


@pytest.fixture
def opened():
    """The names of the ranges that a ModuleRanges opens around what runs until the test ends."""
    gc.collect()  # models of other tests
    names = []
    ranges = ModuleRanges(Marker(Emitter(names.append, lambda: None)), None, CallLog())
    ranges.names = names
    yield ranges
    ranges.end()


def test_a_module_that_hides_its_parts_costs_their_names_and_no_other(opened):
    net = Net(Hiding(), nn.Linear(2, 2))
    opened.begin()
    with torch.no_grad():
        net(torch.ones(2))
    opened.end()
    assert opened.names == ["inference", "Net", "Hiding", "Linear", "Linear"]


def test_two_models_of_a_class_have_names_of_their_own_and_the_layers_of_a_list_have_one():
    first, second, loss = Net(nn.Linear(2, 2)), Net(nn.Linear(2, 2)), nn.MSELoss()
    layers = [nn.Bilinear(2, 2, 2) for _ in range(5)]
    assert numbered_models([first, loss, second, nn.MSELoss(), *layers]) == {id(second): "Net 2"}
    found = models_of_this_process()
    assert [any(model is net for model in found) for net in (first, second)] == [True, True]
    assert not any(model is first[0] for model in found)


def calls(call_log, model, lengths):
    return [
        call_log.classify(model, (), {"input_ids": torch.zeros(2, length, dtype=torch.int64)}) for length in lengths
    ]


def test_a_call_with_one_token_after_a_longer_one_decodes_and_the_next_long_one_is_of_a_prompt():
    call_log, model = CallLog(), nn.Identity()
    with torch.no_grad():
        assert calls(call_log, model, [7, 1, 1, 7, 1]) == [INFERENCE, DECODE, DECODE, PREFILL, DECODE]
        assert calls(call_log, nn.Identity(), [1, 2, 3]) == [INFERENCE] * 3  # no cache: text that grows
        assert call_log.classify(model, (torch.ones(2, 7),), {}) == INFERENCE  # no tokens
    assert calls(call_log, model, [7, 1]) == [FORWARD] * 2


def test_the_calls_of_each_step_are_counted_by_model_kind_and_shapes():
    call_log = CallLog()
    call_log.count("GPT", FORWARD, (torch.ones(1),), {})  # before the first step
    for batch in (2, 3):
        call_log.step_begins()
        call_log.count("GPT", FORWARD, (torch.ones(batch, 4), None), {"mask": torch.ones(batch)})
        call_log.count("GPT", FORWARD, (torch.ones(batch, 4), None), {"mask": torch.ones(batch)})
    assert call_log.counts_by_step == [{"GPT forward with input 2x4 and 2": 2}, {"GPT forward with input 3x4 and 3": 2}]


def test_what_was_compiled_since_is_told_with_its_reasons_and_without_places(monkeypatch):
    texts = [
        "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 6  # y = f(x)  # /home/me/train.py:3 in forward"
    ]
    texts.append("0/1: L['self'].mode == 'hf_secret' and L['self'].training == True")
    fake = type("Utils", (), {"counters": {"stats": {"unique_graphs": 3}}, "guard_failures": {"code": texts}})
    monkeypatch.setitem(__import__("sys").modules, "torch._dynamo.utils", fake)
    assert compilations_since(Compilations(2)) == {
        "compilations": 1,
        "compilation_reasons": [
            "tensor 'x' size mismatch at index 0. expected 4, actual 6",
            "L['self'].mode == '...' and L['self'].training == True",
        ],
    }
    assert compilations_since(Compilations(3)) == {}
