"""Run specifications that pass and those that are refused, each with its one line."""

import json

import pytest

from cs336_model.program.spec import read_spec
from cs336_model.program.variants.effects import process_settings
from tests.cs336_model.specs import changed


def test_a_spec_is_read_as_it_was_written(spec_values):
    assert vars(read_spec(json.dumps(spec_values))) == spec_values


def test_the_mode_names_the_phases_of_a_step(spec_values):
    phases = {
        mode: read_spec(json.dumps(changed(spec_values, mode=mode))).phases
        for mode in ("forward", "forward_backward", "train_step")
    }
    assert phases == {
        "forward": ("forward",),
        "forward_backward": ("forward", "loss", "backward"),
        "train_step": ("forward", "loss", "backward", "optimizer"),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "unknown keys ['colour']"),
        ({"mode": "inference"}, "mode is 'inference'; it must be one of forward, forward_backward, train_step"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
        ({"device": "tpu"}, "device is 'tpu'"),
        ({"measured_steps": 0}, "measured_steps is 0; it must be an integer, 1 or more"),
        ({"warmup_steps": -1}, "warmup_steps is -1; it must be an integer, 0 or more"),
        ({"batch_size": 2.5}, "batch_size is 2.5; it must be an integer"),
        ({"batch_size": True}, "batch_size is True; it must be an integer"),
    ],
)
def test_a_wrong_value_is_refused_in_one_line(spec_values, changes, message):
    with pytest.raises(ValueError) as error:
        read_spec(json.dumps(changed(spec_values, **changes)))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_key_is_named(spec_values):
    del spec_values["seed"]
    with pytest.raises(ValueError, match=r"missing keys \['seed'\]"):
        read_spec(json.dumps(spec_values))


def test_a_spec_that_is_no_object_is_refused():
    with pytest.raises(ValueError, match="is a JSON object, not list"):
        read_spec("[]")


def test_a_dimension_that_the_program_does_not_know_is_refused(spec_values):
    spec_values["dimensions"]["dropout"] = 0.1
    refused = pytest.raises(ValueError, match=r"dimensions of the specification: unknown keys \['dropout'\]")
    with refused, process_settings(read_spec(json.dumps(spec_values))):
        pass


def test_a_dimension_without_a_value_is_named(spec_values):
    del spec_values["dimensions"]["precision"]
    with pytest.raises(ValueError, match=r"missing keys \['precision'\]"):
        read_spec(json.dumps(spec_values))
