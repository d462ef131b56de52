"""The steps of a run, and the program from its arguments to its files."""

import math
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import torch

from cs336_model.benchmark import Subject
from tests.cs336_model.conftest import make_spec
from tests.cs336_model.other_models import Failing

CPU, ROOT = torch.device("cpu"), Path(__file__).parents[2]
MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139 GiB of which 1.25 GiB is free."
)


@pytest.mark.parametrize(
    ("mode", "count", "losses"), [("forward", 1, 1), ("forward_backward", 3, 3), ("train_step", 4, 3)]
)
def test_every_mode_keeps_every_time_and_loss(measure, mode, count, losses):
    result = measure(mode=mode)
    assert result.status == "complete" and result.reason is None
    assert len(result.step_seconds) == 2 and min(result.step_seconds) > 0 and len(result.warmup_seconds) == 1
    assert [len(seconds) for seconds in result.phase_seconds.values()] == [2] * count + [0] * (4 - count)
    assert len(result.losses) == losses
    assert result.losses[0] == pytest.approx(math.log(50), abs=1.0)  # an untrained model knows nothing
    assert result.parameters == 2 * 50 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 32 + 2 * 16) + 16
    assert result.machine.device == "cpu" and result.machine.torch == torch.__version__


@pytest.mark.parametrize("optimizer", ["adamw", "fused"])
def test_training_lowers_the_loss_and_the_other_mode_repeats_it(optimizer):
    trained, repeated = Subject(make_spec(optimizer=optimizer), CPU), Subject(make_spec(mode="forward_backward"), CPU)
    for subject in (trained, repeated):
        subject.run_steps("measure", 4)
    falling, constant = trained.read_losses(), repeated.read_losses()
    assert falling == sorted(falling, reverse=True) and falling[-1] < falling[0]
    assert len(set(constant)) == 1 and constant[0] == falling[0]


def test_equal_seeds_make_equal_weights_and_batches():
    first, second, other = (Subject(make_spec(seed=seed), CPU) for seed in (0, 0, 1))
    assert all(torch.equal(*pair) for pair in zip(first.parameters, second.parameters, strict=True))
    assert torch.equal(first.inputs, second.inputs) and not torch.equal(first.inputs, other.inputs)


def test_counters_are_those_of_a_model_with_fewer_layers(measure):
    full, fewer = measure(stage="counters", layers=9), measure(stage="counters", layers=1)
    assert full.parameters - fewer.parameters == 4 * 16 * 16 + 3 * 16 * 32 + 2 * 16
    assert fewer.status == "complete"


def test_a_loss_that_is_no_number_is_a_result_with_its_step(measure, their_module):
    their_module.Broken = lambda **sizes: Failing(at=2, value=float("nan"))
    result = measure(constructor="their_module:Broken")
    assert result.status == "non_finite" and len(result.losses) == 2
    assert result.reason == "the loss of step 2, counted from 0 with the warm-up, is nan"


@pytest.mark.parametrize(("at", "during"), [(0, "warmup step 0: forward"), (2, "measure step 1: forward")])
def test_out_of_memory_is_a_result_with_the_phase_and_the_request(measure, their_module, tmp_path, at, during):
    their_module.Growing = lambda **sizes: Failing(torch.OutOfMemoryError(MESSAGE), at)
    capture = tmp_path / "capture.sqlite"
    options = ("--profiler", "torch", "--capture", str(capture))
    result = measure(*options, stage="capture", constructor="their_module:Growing")
    assert (result.status, result.out_of_memory.during) == ("out_of_memory", during)
    assert result.out_of_memory.requested_bytes == 2_684_354_560
    assert result.reason == f"no memory was left during {during}; 2.50 GiB more were asked for"
    assert result.step_seconds == [] and not capture.exists(), "times of steps before the failure are no result"


def test_any_other_error_is_no_result(measure, their_module, tmp_path):
    their_module.Broken = lambda **sizes: Failing(RuntimeError("CUDA error: an illegal memory access"), 1)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        measure(constructor="their_module:Broken")
    assert not (tmp_path / "timing.json").exists()


def test_a_process_of_the_timing_imports_no_profiler_no_compiler_and_no_pandas(tmp_path):
    code = (
        "import sys\nfrom cs336_model import __main__ as program\nprogram.main(sys.argv[1:])\n"
        "heavy = ('torch._dynamo', 'torch._inductor', 'pandas', 'nvtx', 'kernel_tables.marks',"
        " 'kernel_tables', 'torch.utils.flop_counter', 'cs336_model.parallel')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    spec, path = msgspec.json.encode(make_spec()).decode(), str(tmp_path / "timing.json")
    command = [sys.executable, "-c", code, "--spec", spec, "--output", path, "--locks", str(tmp_path / "locks")]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "[]\n"
