"""What a run is predicted to need on each GPU, by component."""

from cs336_model.arithmetic.flops import ModelShape, parameter_count
from cs336_model.arithmetic.memory import estimated_peak_bytes
from cs336_model.program.variants.predicted_memory import (
    ACTIVATIONS,
    BUCKETS,
    GATHERED,
    GRADIENTS,
    MOMENTS,
    PARAMETERS,
    predicted_parts,
    predicted_peak_bytes,
)
from tests.default_values import DEFAULT_VALUES

SHAPE = ModelShape(2, 512, 10000, 768, 12, 12, 3072)
TRAINING = DEFAULT_VALUES | {"mode": "train_step"}
WEIGHTS = 4 * parameter_count(SHAPE)  # bytes


def test_one_process_has_all_of_everything_and_the_peak_of_its_step():
    parts = predicted_parts(SHAPE, TRAINING)
    assert [parts[name] for name in (PARAMETERS, GRADIENTS, MOMENTS)] == [WEIGHTS, WEIGHTS, 2 * WEIGHTS]
    assert not {GATHERED, BUCKETS} & {*parts}
    assert predicted_peak_bytes(SHAPE, TRAINING) == estimated_peak_bytes(SHAPE, "train_step", TRAINING)
    assert set(predicted_parts(SHAPE, TRAINING | {"mode": "forward"})) == {PARAMETERS, "logits and loss"}


def test_what_is_divided_among_gpus_is_a_part_on_each():
    several = TRAINING | {"gpus": 4}
    ddp = predicted_parts(SHAPE, several | {"parallel": "ddp"})
    assert (ddp[PARAMETERS], ddp[BUCKETS]) == (WEIGHTS, WEIGHTS)
    fsdp = predicted_parts(SHAPE, several | {"parallel": "fsdp"})
    assert [fsdp[name] for name in (PARAMETERS, GRADIENTS, MOMENTS)] == [WEIGHTS // 4, WEIGHTS // 4, WEIGHTS // 2]
    block = 4 * 768**2 + 3 * 768 * 3072 + 2 * 768
    assert fsdp[GATHERED] == 4 * (2 * 10000 * 768 + 2 * block + 768)
    assert fsdp[ACTIVATIONS] == ddp[ACTIVATIONS]
    peaks = {way: predicted_peak_bytes(SHAPE, several | {"parallel": way}) for way in ("naive", "ddp", "fsdp")}
    assert peaks["ddp"] == peaks["naive"] + WEIGHTS and peaks["fsdp"] < peaks["naive"]
