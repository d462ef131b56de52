"""A specification is checked where it enters."""

import pytest

from cs336_model import __main__ as program
from cs336_model.spec import find_conflict
from tests.cs336_model.conftest import SIZES, make_spec


@pytest.mark.parametrize(
    ("text", "message"), [('{"run": "r", "precision": "fp8"}', "'fp8' - at `$.precision`"), ('{"run": 1}', "`$.run`")]
)
def test_a_specification_that_is_wrong_ends_the_program_in_one_line(tmp_path, text, message):
    with pytest.raises(SystemExit) as ended:
        program.main(["--spec", text, "--output", str(tmp_path / "timing.json")])
    assert ended.value.code.startswith("specification: ") and message in ended.value.code


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compile": "on", "checkpoint": "1"}, "compile on with checkpoint 1"),
        ({"checkpoint": "2-2"}, "checkpoint 2-2: groups inside a group must be smaller"),
        ({"attention": "flash", "constructor": "m:LM"}, "attention flash, checkpoint 0 with the model m:LM"),
        ({"compile": "attention", "constructor": "m:LM"}, "compile attention, attention eager"),
        ({"checkpoint": "2", "constructor": "m:LM"}, "checkpoint 2 with the model m:LM"),
        ({"optimizer": "fused", "mode": "forward"}, "optimizer fused with mode forward"),
        ({"gpus": 2}, "gpus 2 with parallel none"),
        ({"parallel": "ddp"}, "gpus 1 with parallel ddp"),
        ({"gpus": 2, "parallel": "ddp", "mode": "forward"}, "it has no gradients to reduce"),
        ({"gpus": 4, "parallel": "ddp"}, "batch_size 2: all GPUs share a batch, and 4 does not divide it"),
        ({"gpus": 2, "parallel": "fsdp", "compile": "on"}, "compile on: a compiled graph is split"),
    ],
    ids=str,
)
def test_a_combination_that_no_machine_can_measure_has_a_reason(changes, message):
    assert message in find_conflict(make_spec(**changes)) and find_conflict(make_spec()) is None


def test_arguments_are_the_values_of_the_run_by_name_and_all_of_the_shape_if_there_are_none():
    shape = {"vocab_size": 50, "context_length": 8, "rope_theta": 10000.0, **SIZES}
    assert make_spec().constructor_arguments() == shape
    arguments = {"n_embd": "$d_model", "block_size": "$context_length", "batch": "$batch_size", "dropout": 0.1}
    expected = {"n_embd": 16, "block_size": 8, "batch": 2, "dropout": 0.1}
    assert make_spec(arguments=arguments).constructor_arguments() == expected
