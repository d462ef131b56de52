"""Models of other people: found, annotated, replaced, and their outputs read; errors in one line."""

import pytest
import torch

from cs336_model import ranges
from cs336_model.benchmark import Subject
from kernel_tables.profile import read
from tests.cs336_model.conftest import make_spec

CPU = torch.device("cpu")
COURSE = "their_module:BasicsTransformerLM"


def test_a_function_of_another_module_runs_in_the_range_it_is_given(their_module):
    opened = []
    ranges.open_spans_with(lambda name: opened.append(name) or ranges._NO_RANGE)
    annotate = {"attention": "their_module:scaled_dot_product_attention"}
    subject = Subject(make_spec(constructor=COURSE, annotate=annotate), CPU)
    subject.run_steps("measure", 1)
    inside = opened[opened.index("forward") + 1 : opened.index("loss")]
    assert inside == ["attention", "attention"]
    assert their_module.scaled_dot_product_attention.__name__ == "scaled_dot_product_attention"


def test_the_flops_and_parameters_of_another_model_are_counted(measure, their_module):
    result = measure(constructor=COURSE)
    tokens = 2 * 8
    projections, attention = 2 * tokens * 16 * 48, 2 * 2 * 2 * 8 * 8 * 16
    assert result.forward_flops == 2 * (projections + attention) + 2 * tokens * 16 * 50
    assert result.parameters == 50 * 16 + 2 * (48 * 16 + 48) + 50 * 16


def test_a_function_is_replaced(their_module):
    their_module.zeros = lambda Q, K, V, mask=None: V * 0
    spec = make_spec(constructor=COURSE, replace={"their_module:scaled_dot_product_attention": "their_module:zeros"})
    subject = Subject(spec, CPU)
    subject.run_steps("measure", 1)
    assert all((project.weight.grad == 0).all() for project in subject.model.projections)


@pytest.mark.parametrize("returned", ["logits", "tuple", "mapping", "object"])
def test_logits_are_found_in_what_a_model_returns(measure, their_module, returned):
    result = measure(constructor="their_module:LM", arguments={"vocab": "$vocab_size", "returned": returned})
    assert len(result.losses) == 3


@pytest.mark.parametrize("name", ["WithLoss", "WithLabels"])
def test_a_model_that_computes_its_loss_does_so_in_training_alone(their_module, name):
    constructor, arguments = f"their_module:{name}", {"vocab": "$vocab_size"}
    trained = Subject(make_spec(constructor=constructor, arguments=arguments), CPU)
    trained.run_steps("measure", 1)
    logits = trained.model(trained.inputs)
    logits = logits[0] if name == "WithLoss" else logits.logits
    (given,) = trained.loss_arguments.values()
    assert given is (trained.targets if name == "WithLoss" else trained.inputs)
    assert trained.model.training and torch.isfinite(trained.losses[0])
    forward = Subject(make_spec(constructor=constructor, arguments=arguments, mode="forward"), CPU)
    forward.run_steps("measure", 1)
    assert not forward.model.training and forward.losses == []
    forward.add_missing_loss()
    assert len(forward.losses) == 1


@pytest.mark.parametrize(
    ("constructor", "arguments", "message"),
    [
        ("LM", {"returned": "nothing"}, "the model returned a NoneType; expected: logits"),
        ("LM", {"returned": "hidden"}, "the model returned a SimpleNamespace; expected: logits"),
        ("LM", {"returned": "one position"}, "logits of shape (2, 1, 50) for tokens of shape (2, 8) and no loss"),
        ("LM", {"vocab": 60}, "logits of shape (2, 8, 60), and vocab_size is 50: give the constructor vocab_size"),
        ("LM", {"vocab": 40}, "without a parameter for each of 50 tokens (the largest dimension is 40)"),
        ("LM", {"d_model": 8}, "called with d_model, raised TypeError: LM.__init__() got an"),
        ("raising", {}, "raised KeyError: 'no such size' (other_models.py, line "),
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
    arguments = {"vocab": "$vocab_size", "step": True}
    changes = {"constructor": "their_module:LM", "arguments": arguments, "annotate": "modules"}
    measure("--profiler", "torch", "--capture", str(path), stage="capture", **changes)
    with read(path) as trace:
        instances = trace.ranges(tree=True).set_index("range")["instances"]
    assert instances["measure > step"] == 2
    assert instances["measure > step > forward > LM > module step"] == 2
    assert instances["measure > step > backward > LM > head"] == 2
