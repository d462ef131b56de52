"""Programs as people write them: each prints, ends and leaves behind under `record` what it does without it.

They print a digest of their weights and of the state of their random numbers.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernel_tables.trace import Trace

PROGRAMS = Path(__file__).with_name("programs")
ROOT = Path(__file__).parents[2]
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    "OMP_NUM_THREADS": "1",
    "KINETO_LOG_LEVEL": "99",
}
TIMES = re.compile(r"in [0-9.]+s")  # pytest's own


@dataclass(frozen=True)
class Ended:
    status: int
    out: str
    err: str
    folder: Path

    def ranges(self, capture="recording.sqlite"):
        """The paths of ranges, with their instances."""
        with Trace(self.folder / capture) as trace:
            return trace.range_tree().set_index("range")["instances"].to_dict()

    def phases(self):
        """The ranges right below the steps."""
        return {path.split(" > ")[1] for path in self.ranges() if path.count(" > ") == 1}


@pytest.fixture
def compared(tmp_path):
    """A function that runs a program of the folder plainly and recorded, compares, and returns the recorded run."""

    def run(program, *arguments, options=(), start=()):
        runs = []
        for name, prefix in (("plain", []), ("recorded", record_command(options))):
            folder = tmp_path / name
            shutil.copytree(PROGRAMS, folder)
            command = [*prefix, sys.executable, *start, *([program] if program else []), *arguments]
            environment = os.environ | ENVIRONMENT
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            runs.append(Ended(done.returncode, TIMES.sub("", done.stdout), done.stderr, folder))
        plain, recorded = runs
        assert (recorded.out, recorded.status) == (plain.out, plain.status), recorded.err + plain.err
        return recorded

    return run


def record_command(options):
    return [sys.executable, "-m", "kernel_tables", "record", "--profiler", "torch", *options, "--"]


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def test_gradient_accumulation_and_an_evaluation_in_a_program_started_by_m(compared):
    done = compared(None, start=["-m", "nanogpt"])
    ranges = done.ranges()
    assert done.phases() == {
        "forward",
        "inference",
        "backward",
        "Optimizer.step#AdamW.step",
        "Optimizer.zero_grad#AdamW.zero_grad",
    }
    assert (ranges["step"], ranges["step > forward > GPT"], ranges["step > inference > GPT"]) == (6, 12, 3)
    assert ranges["step > backward > GPT > transformer.h"] == 2 * 12
    assert "calls in each of them: GPT inference with input 4x16: 0, 3, 0, 0, 0, 0" in done.err


def test_two_optimizers_and_two_models(compared):
    done = compared("gan.py")
    ranges = done.ranges()
    assert ranges["step > forward > Generator"] == 6
    assert ranges["step > forward > Discriminator"] == 18
    assert ranges["step > Optimizer.step#Adam.step"] == ranges["step > Optimizer.step#Adam 2.step"] == 6
    assert "the program has several optimizers (Adam, Adam 2); a step ends with a step of Adam 2\n" in done.err


def test_the_wait_for_data_has_a_range_as_long_as_it_lasts(compared):
    done = compared("lstm.py")
    with Trace(done.folder / "recording.sqlite") as trace:
        instances = trace.range_instances()
    of_loader = instances[instances["name"].astype(str).str.startswith("enumerate(DataLoader)")]
    lengths = of_loader["end_ns"] - of_loader["start_ns"]
    assert len(of_loader) == 6
    assert lengths.median() > 10e6  # of the 100 ms that an item takes; a step on a busy machine takes some of them


def test_an_optimizer_does_what_it_launches_outside_its_closure(compared):
    done = compared("closure.py", "lbfgs")
    ranges = done.ranges()
    optimizer = "step > Optimizer.step#LBFGS.step"
    assert {"forward", "backward", optimizer.removeprefix("step > ")} <= done.phases()
    assert not [path for path in ranges if path.startswith(f"{optimizer} > ")]
    with Trace(done.folder / "recording.sqlite") as trace:
        kernels = trace.kernels()
    of_optimizer = set(kernels.loc[kernels["range"] == optimizer, "kernel"])
    assert not {"aten::linear", "aten::tanh", "aten::tanh_backward"} & of_optimizer
    assert of_optimizer


def test_text_is_recorded_by_calls_and_a_prompt_apart_from_the_tokens_after_it(compared):
    done = compared("generate.py")
    ranges = done.ranges()
    assert (ranges["step"], ranges["step > prefill > Decoder"], ranges["step > decode > Decoder"]) == (6, 1, 5)
    assert "recording.sqlite: calls 6 to 11 of Decoder of process" in done.err
    assert "a step is a call of Decoder, and what follows it until the next" in done.err


def test_a_compiled_model_is_compiled_as_often_as_without(compared):
    done = compared("compiled.py", "eager")  # which prints how often, and its graph breaks
    ranges = done.ranges()
    assert ranges["step > forward > Net"] == 6
    assert not [path for path in ranges if "dynamo" in path]
    assert "inside the window" not in done.err


def test_a_compiled_model_without_an_optimizer_is_compiled_as_often_as_without(compared):
    done = compared("compiled.py", "eager", "99", "inference")
    assert done.ranges()["step > inference > Net"] == 6


def test_a_compiled_optimizer_is_compiled_as_often_as_without(compared):
    done = compared("compiled.py", "eager", "99", "optimizer")
    assert "recording.sqlite: steps 6 to 11 of process" in done.err
    assert "a step begins with the first call of a model after SGD has changed the weights" in done.err
    assert done.ranges()["step > forward > Net"] == 6


def test_what_a_program_compiles_inside_the_window_is_told(compared):
    done = compared("compiled.py", "eager", "8")
    assert "torch.compile compiled 1 graph inside the window" in done.err
    assert "size mismatch at index 0. expected 4, actual 6" in done.err
    assert "compiled.py" not in done.err  # no path


def test_a_profile_of_the_programs_own_is_as_without_and_the_window_comes_after_it(compared):
    done = compared("own_profiler.py", options=["--skip", "3", "--steps", "2"])
    assert "the window starts later, since the program used PyTorch's profiler itself until then" in done.err
    assert "recording.sqlite: steps 7 to 8 of process" in done.err


def test_a_window_ends_where_the_program_opens_a_profile_of_its_own(compared):
    done = compared("own_profiler.py", "late")
    assert "the program started PyTorch's profiler itself, so this window ended there" in done.err
    assert "recording.sqlite: steps 6 to 8 and a part of step 9 of process" in done.err


@pytest.mark.parametrize(
    ("options", "window"), [(["--skip", "3", "--steps", "2"], "steps 4 to 5"), ([], "step 6 and a part of step 7")]
)
def test_a_program_that_records_itself_is_recorded_too(compared, options, window):
    done = compared("recorded_inside.py", options=options)
    assert f"recording.sqlite: {window} of process" in done.err
    assert done.ranges("inside.sqlite")["train"] == 2


def test_an_error_in_a_forward_pass_and_the_status_of_the_program(compared):
    assert compared("failing.py").ranges()["step > forward > Sequential"] == 6


def test_a_closed_pipe_costs_nothing(tmp_path):
    shutil.copytree(PROGRAMS, tmp_path, dirs_exist_ok=True)
    command = [*record_command([]), sys.executable, "closure.py"]
    environment = os.environ | ENVIRONMENT
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        process.stderr.close()  # as by 2>&1 | head -1
    assert process.returncode == 0
    assert (tmp_path / "recording.sqlite").exists()


def test_a_test_run_by_pytest(compared):
    start = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    assert compared("pytest_of_a_model.py", start=start).ranges()["step"] == 6


def test_ranks_under_torchrun(compared):
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = compared("distributed.py", start=start)
    assert done.ranges()["step"] == done.ranges("recording_rank1.sqlite")["step"] == 6


@needs("transformers")
@needs("accelerate")
def test_a_trainer_of_hugging_face(compared):
    done = compared("hugging_face.py")
    assert done.ranges()["step > forward > LlamaForCausalLM"] == 12


@needs("transformers")
def test_text_of_hugging_face(compared):
    ranges = compared("hugging_face_generate.py").ranges()
    assert (ranges["step > prefill > LlamaForCausalLM"], ranges["step > decode > LlamaForCausalLM"]) == (1, 5)


@pytest.mark.skipif(not (find_spec("lightning") or find_spec("pytorch_lightning")), reason="Lightning is not installed")
def test_pytorch_lightning(compared):
    done = compared("lightning_fit.py")
    assert {"forward", "backward", "inference", "Optimizer.step#Adam.step"} <= done.phases()
    assert not [path for path in done.ranges() if path.startswith("step > Optimizer.step#Adam.step > ")]
