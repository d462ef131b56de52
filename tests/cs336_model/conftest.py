"""Shape checks run in tests: the model's signatures are enforced by beartype wherever these tests import it first."""

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from jaxtyping import install_import_hook

with install_import_hook(["cs336_model.model.transformer", "cs336_model.model.functional"], "beartype.beartype"):
    import cs336_model.model.transformer  # noqa: F401

from cs336_model import ranges
from cs336_model.arguments import PROJECT_ARGUMENTS
from tests.cs336_model.specs import changed
from tests.default_values import DEFAULT_VALUES

SIZES = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32, "rope_theta": 10000.0}


@pytest.fixture(autouse=True)
def no_ranges_left_on():
    """The emitter is chosen once per process; a test must not choose it for the next."""
    yield
    ranges.emit_ranges("none")


@pytest.fixture
def spec_values() -> dict:
    """A run of a model that takes milliseconds."""
    return {
        "run": "tiny_ctx8_train_step",
        "dimensions": {
            "model": "tiny",
            "context_length": 8,
            "mode": "train_step",
            "batch_size": 2,
            **DEFAULT_VALUES,
        },
        "constructor": "cs336_model.model:TransformerLM",
        "config": None,
        "arguments": PROJECT_ARGUMENTS,
        "sizes": SIZES,
        "annotate": {},
        "replace": {},
        "vocab_size": 50,
        "warmup_steps": 1,
        "measured_steps": 2,
        "seed": 0,
        "device": "cpu",
    }


@pytest.fixture
def spec_text(spec_values) -> str:
    return json.dumps(spec_values)


@pytest.fixture
def run_benchmark(tmp_path, spec_values):
    """A function that runs the benchmark in this process with changed spec values and gives back its result."""
    from cs336_model.program import benchmark

    def run(*options: str, **changes) -> dict:
        path = tmp_path / "result.json"
        benchmark.main(["--spec", json.dumps(changed(spec_values, **changes)), "--output", str(path), *options])
        return json.loads(path.read_text())

    return run


@pytest.fixture
def their_module(monkeypatch) -> ModuleType:
    """A fresh copy of other people's module, importable as `their_module`: a test may change it."""
    spec = spec_from_file_location("their_module", Path(__file__).with_name("other_models.py"))
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "their_module", module)
    spec.loader.exec_module(module)
    return module
