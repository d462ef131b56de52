"""Models of our own and of other people: found, annotated, seeded, made on the device."""

import json

import pytest
import torch

from cs336_model import ranges
from cs336_model.program import subject
from cs336_model.program.spec import RunSpec, read_spec
from cs336_model.program.targets import UnusableModel, annotate
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")


def spec_of(values: dict, **changes) -> RunSpec:
    return read_spec(json.dumps(changed(values, **changes)))


def test_equal_seeds_make_equal_weights_and_batches(spec_values):
    spec = spec_of(spec_values)
    first, second = subject.build_model(spec, CPU), subject.build_model(spec, CPU)
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(subject.make_batch(spec, CPU)[0], subject.make_batch(spec, CPU)[0])
    other = subject.make_batch(spec_of(spec_values, seed=1), CPU)
    assert not torch.equal(subject.make_batch(spec, CPU)[0], other[0])


def test_targets_are_the_tokens_that_follow(spec_values):
    inputs, targets = subject.make_batch(spec_of(spec_values), CPU)
    assert inputs.shape == targets.shape == (2, 8)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert inputs.is_contiguous() and targets.is_contiguous()


def test_a_function_of_another_module_runs_in_the_range_it_is_given(monkeypatch, their_module):
    opened = []
    monkeypatch.setattr(ranges, "_open_span", lambda name: opened.append(name) or ranges._NO_RANGE)
    annotate("scaled dot product attention", "their_module:scaled_dot_product_attention")
    lm = their_module.BasicsTransformerLM(50, 8, 16, 2, 2, 32, 10000.0)
    assert lm(torch.zeros(1, 8, dtype=torch.int64)).shape == (1, 8, 50)
    assert opened == ["scaled dot product attention"] * 2
    assert their_module.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"


def test_a_method_can_be_annotated(monkeypatch, their_module):
    opened = []
    monkeypatch.setattr(ranges, "_open_span", lambda name: opened.append(name) or ranges._NO_RANGE)
    annotate("whole model", "their_module:BasicsTransformerLM.forward")
    their_module.BasicsTransformerLM(50, 8, 16, 2, 2, 32, 10000.0)(torch.zeros(1, 8, dtype=torch.int64))
    assert opened == ["whole model"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("their_module:attention", "their_module has no attribute 'attention'"),
        ("their_module:BasicsTransformerLM.backward_", "BasicsTransformerLM has no attribute"),
        ("no_such_module:f", "'no_such_module:f': no module 'no_such_module'"),
        ("their_module", "'their_module' is not of the form module:name"),
    ],
)
def test_what_cannot_be_annotated_is_named_with_its_module(their_module, target, message):
    with pytest.raises(UnusableModel, match=message):
        annotate("range", target)
