"""Programs as people write them: each prints, ends and leaves behind under `record` what it does without it.

They print a digest of their weights and of the state of their random numbers.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_tables

PROGRAMS = Path(__file__).with_name("programs.py")
ROOT = Path(__file__).parents[3]
COMPARED = ["trains", "compiles", "profiles"]


@pytest.fixture(autouse=True)
def importing_from_here(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KINETO_LOG_LEVEL", "99")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """By program, what it prints without us, and its status as the last line."""
    folder = tmp_path_factory.mktemp("plain")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "KINETO_LOG_LEVEL": "99"}
    command = [sys.executable, PROGRAMS, "plainly", folder, *COMPARED]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    return {name: (folder / f"{name}.out").read_text() for name in COMPARED}


@pytest.fixture
def compared(record, plain):
    """A function that runs a program recorded, compares it with its plain run, and returns the recorded run."""

    def run(name, *options, start=("programs.py",)):
        done = record("", *options, program=[sys.executable, *start, name])
        assert f"{done.out}status {done.status}\n" == plain[name], done.err
        return done

    return run


def test_a_training_with_two_optimizers_an_evaluation_an_error_and_a_status_that_is_started_by_m(compared):
    done = compared("trains", start=("-m", "programs"))
    ranges = done.instances()
    phases = {path.split(" > ")[1] for path in ranges if path.count(" > ") == 1}
    assert phases == {
        "forward", "inference", "backward", "Optimizer.step#AdamW.step", "Optimizer.zero_grad#AdamW.zero_grad",
    }  # fmt: skip
    # the range of the optimizer that calls a closure has two instances, before and after the call
    assert (done.status, ranges["step"], ranges["step > Optimizer.step#AdamW.step"]) == (5, 6, 18)
    assert (ranges["step > forward > Net"], ranges["step > inference > Net"]) == (18, 3)
    assert ranges["step > backward > Net > blocks > blocks.up"] == 6 * 3 * 2 - 2  # one forward pass failed
    assert "recording.sqlite: steps 6 to 11 of AdamW, process" in done.err
    with kernel_tables.read("recording.sqlite") as profile:  # the recorder adds no operator of its own
        assert "aten::empty" not in set(profile.kernels().query("range == 'step > backward'")["kernel"])


def test_a_compiled_model_is_compiled_as_often_as_without_and_its_products_are_in_its_modules(compared):
    done = compared("compiles", "--calls")  # the program prints how often; its optimizer is compiled
    assert "torch.compile compiled in the window, whose times include that (number of graphs: 1)" in done.err
    with kernel_tables.read("recording.sqlite") as profile:
        kernels = profile.kernels("step")
    products = kernels[kernels["kernel"] == "aten::mm"].groupby("range")["launches"].sum().to_dict()
    parts = {"blocks > blocks.up": (12, 24 - 6), "blocks > blocks.down": (12, 24), "head": (6, 12)}
    in_parts = {path: count for path, count in products.items() if not path.endswith("Net")}  # there, compiling runs
    assert in_parts == {  # in the backward pass two, but one of the first, whose input needs no gradient
        f"step > {phase} > Net > {part}": counts[index]
        for index, phase in enumerate(("forward", "backward"))
        for part, counts in parts.items()
    }


def test_a_program_that_profiles_itself_loses_nothing(compared):
    done = compared("profiles", "--skip", "2", "--steps", "19")
    assert "the window ended early: the program started PyTorch's profiler itself; what was recorded" in done.err


def test_each_rank_has_its_capture(record):
    done = record(program=[sys.executable, "programs.py", "joins"])
    assert done.instances()["step"] == done.instances("recording_rank1.sqlite")["step"] == 6
    assert "recording_rank1.sqlite: steps 6 to 11 of SGD, rank 1, process" in done.err
    with kernel_tables.read("recording_rank1.sqlite") as profile:
        assert (profile.metadata["RECORDED_RANK"], profile.metadata["RECORDED_RANKS"]) == ("1", "2")


def test_a_crash_in_the_window_keeps_what_was_recorded_and_the_first_process_is_the_one(record, monkeypatch):
    monkeypatch.setenv("SECRET", "canary-s3cr3t")
    program = [sys.executable, "programs.py", "crashes", "--key", "s3cr3t", "--lr", "3"]
    done = record("", "--skip", "1", "--steps", "9", "-o", "crash.sqlite", program=program)
    assert (done.status, done.out) == (1, "child ended with 1\n")
    assert "OutOfMemoryError: made up" in done.err
    assert "the window ended early: the program ended; what was recorded until then is kept" in done.err
    assert "only the first process at the window was recorded (number of others: 1)" in done.err
    assert "crash.sqlite: steps 2 to 4 and a part of step 5 of SGD, process" in done.err
    assert "error:" not in done.err
    # it has a range of its own, so its modules get none, and its steps do; a name that Kineto would lose is kept
    loader = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    with kernel_tables.read("crash.sqlite") as profile:
        ranges = profile.ranges().set_index("range")["instances"].to_dict()
        assert profile.recorded_window["program"] == f"{Path(sys.executable).name} programs.py"
    expected = {"step": 3, "step (unfinished)": 1, 'n\u00e9"w\u202e': 3, "Optimizer.step#SGD.step": 3}
    assert ranges | expected == ranges and loader in ranges
    kept = Path("crash.sqlite").read_bytes()
    assert not [secret for secret in (b"canary", b"s3cr3t", str(done.folder).encode()) if secret in kept]
