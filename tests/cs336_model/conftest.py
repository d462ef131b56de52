"""Runs of a model that takes milliseconds, in this process or in one of its own, with locks of their own."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from cs336_model import __main__ as program
from cs336_model import locks, ranges
from cs336_model.results import Result, read_result
from cs336_model.spec import Spec
from kernel_tables import marks
from kernel_tables.marks import compiled

SIZES = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32}


def make_spec(**changes) -> Spec:
    """A training run of two layers, two sequences and eight positions on the CPU, with these changes."""
    values = {"run": "tiny", "model": "tiny", "context_length": 8, "mode": "train_step", "batch_size": 2,
              "sizes": SIZES, "vocab_size": 50, "warmup_steps": 1, "measured_steps": 2, "device": "cpu"}  # fmt: skip
    return Spec(**values | changes)


def end_ranges() -> None:
    """What a span does is chosen once per process; a test must not choose it for the next."""
    ranges._open = ranges._marker = None
    marks.follow_backward(None)
    compiled.leave_compiled()
    for parts in [*marks.ModuleParts.active]:
        parts.end()


@pytest.fixture(autouse=True)
def no_ranges_left_on():
    yield
    end_ranges()


@pytest.fixture
def measure_spec(tmp_path, monkeypatch):
    """A function that measures a run in this process, and returns its result. The locks that the program keeps until it
    ends are given up then."""
    kept = []
    for name in ("shared", "exclusive"):
        take = getattr(locks, name)
        monkeypatch.setattr(locks, name, lambda *given, take=take: kept.append(take(*given)) or kept[-1])

    def run(spec: Spec, *options: str) -> Result:
        path = tmp_path / f"{spec.stage}.json"
        text = msgspec.json.encode(spec).decode()
        program.main(["--spec", text, "--output", str(path), "--locks", str(tmp_path / "locks"), *options])
        for held in kept:
            held.release()
        return read_result(path)

    return run


@pytest.fixture
def measure(measure_spec):
    """The same for a changed run of the tiny model."""
    return lambda *options, **changes: measure_spec(make_spec(**changes), *options)


@pytest.fixture
def their_module(monkeypatch) -> ModuleType:
    """A fresh copy of other people's module, importable as `their_module`: a test may change it."""
    spec = spec_from_file_location("their_module", Path(__file__).with_name("other_models.py"))
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "their_module", module)
    spec.loader.exec_module(module)
    return module
