"""Models of other people: found, annotated, replaced, and their outputs read; errors in one line."""

import pytest
import torch

from cs336_model import ranges
from cs336_model.benchmark import Subject
from kernel_tables.marks import Emitter
from kernel_tables.profile import read
from tests.cs336_model.conftest import make_spec

CPU = torch.device("cpu")
LM = {"constructor": "their_module:LM", "arguments": {"vocab": "$vocab_size"}}


def test_a_function_of_another_module_runs_in_the_range_it_is_given(their_module):
    opened = []
    ranges.emit_ranges(Emitter(opened.append, lambda: None))
    Subject(make_spec(annotate={"logits": "their_module:find_logits"}, **LM), CPU).run_steps("measure", 1)
    assert opened[opened.index("forward") + 1 : opened.index("loss")] == ["logits"]
    assert their_module.find_logits.__name__ == "find_logits"


def test_the_flops_and_parameters_of_another_model_are_counted(measure, their_module):
    result = measure(**LM)
    assert (result.forward_flops, result.parameters) == (2 * (2 * 8) * 8 * 50, 50 * 8 + 8 * 50 + 50)


@pytest.mark.parametrize("returned", ["logits", "tuple", "mapping", "object"])
def test_logits_are_found_in_what_a_model_returns(measure, their_module, returned):
    result = measure(constructor="their_module:LM", arguments={"vocab": "$vocab_size", "returned": returned})
    assert len(result.losses) == 3


def test_a_model_that_computes_its_loss_does_so_in_training_alone(their_module):
    own = LM | {"constructor": "their_module:WithLabels"}
    trained, forward = Subject(make_spec(**own), CPU), Subject(make_spec(**own, mode="forward"), CPU)
    for subject in (trained, forward):
        subject.run_steps("measure", 1)
    assert trained.loss_arguments["labels"] is trained.inputs
    assert trained.model.training and torch.isfinite(trained.losses[0])
    assert not forward.model.training and forward.losses == []


@pytest.mark.parametrize(
    ("constructor", "arguments", "message"),
    [
        ("LM", {"returned": "hidden"}, "the model returned a SimpleNamespace; expected: logits"),
        ("LM", {"returned": "one position"}, "logits of shape (2, 1, 50) for tokens of shape (2, 8) and no loss"),
        ("LM", {"vocab": 60}, "logits of shape (2, 8, 60), and vocab_size is 50: give the constructor vocab_size"),
        ("LM", {"vocab": 40}, "without a parameter for each of 50 tokens (the largest dimension is 40)"),
        ("LM", {"d_model": 8}, "called with d_model, raised TypeError: LM.__init__() got an"),
        ("no_module", {}, "their_module:no_module returned <class 'their_module.LM'>, not a torch.nn.Module"),
        ("Absent", {}, "'their_module:Absent': their_module has no attribute 'Absent'; check the spelling"),
    ],
)
def test_what_a_model_returns_or_refuses_is_said_in_one_line(measure, their_module, constructor, arguments, message):
    with pytest.raises(SystemExit) as ended:
        measure(constructor=f"their_module:{constructor}", arguments=arguments)
    assert message in ended.value.code and ended.value.code.startswith("tiny: ")
    assert "\n" not in ended.value.code


def test_every_module_has_a_range_and_one_that_is_called_as_a_step_is_told_from_it(measure, their_module, tmp_path):
    path = tmp_path / "capture.sqlite"
    changes = LM | {"arguments": {"vocab": "$vocab_size", "step": True}, "annotate": "modules", "stage": "capture"}
    measure("--profiler", "torch", "--capture", str(path), **changes)
    with read(path) as trace:
        instances = trace.ranges(tree=True).set_index("range")["instances"]
    assert instances["measure > step"] == 2
    assert instances["measure > step > forward > LM > module step"] == 2
    assert instances["measure > step > backward > LM > head"] == 2
