"""What a span does under each emitter, and how the model's ranges nest."""

import sys
from contextlib import contextmanager

import pytest
import torch
from torch.autograd.profiler import profile

from cs336_model import ranges
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from kernel_tables.kineto.capture import export_capture
from kernel_tables.trace import Trace

INSIDE_FORWARD = """
embedding
block
block > norm
block > attention
block > attention > qkv projection
block > attention > rope
block > attention > scaled dot product attention
block > attention > scaled dot product attention > computing attention scores
block > attention > scaled dot product attention > mask and scale
block > attention > scaled dot product attention > computing softmax
block > attention > scaled dot product attention > final matmul
block > attention > output projection
block > residual
block > feed-forward
block > feed-forward > activation
norm
head
"""


def recorded_paths(monkeypatch, spec_text: str) -> list[str]:
    """The path of every range that two train steps open, in order."""
    open_names, paths = [], []

    @contextmanager
    def record(name: str):
        open_names.append(name)
        paths.append(" > ".join(open_names))
        yield
        open_names.pop()

    monkeypatch.setattr(ranges, "_open_span", record)
    spec, device = read_spec(spec_text), torch.device("cpu")
    run_steps(make_subject(spec, device), spec.measured_steps, PhaseClock(device, ranges.MEASURE, Progress()))
    return paths


def test_a_train_step_opens_exactly_the_promised_paths(monkeypatch, spec_text):
    forward = [f"measure > step > forward > {line}" for line in INSIDE_FORWARD.strip().splitlines()]
    phases = [f"measure > step > {phase}" for phase in ("forward", "loss", "backward", "optimizer", "synchronize")]
    assert set(recorded_paths(monkeypatch, spec_text)) == {"measure", "measure > step", *phases, *forward}


def test_ranges_of_a_block_are_instances_of_one_name(monkeypatch, spec_text):
    paths = recorded_paths(monkeypatch, spec_text)
    steps, layers = 2, 2
    assert paths.count("measure > step > forward > block") == steps * layers
    assert paths.count("measure > step > forward > block > norm") == steps * layers * 2
    assert paths.count("measure > step > forward > norm") == steps


def test_without_an_emitter_a_span_is_one_shared_object_that_does_nothing():
    ranges.emit_ranges("none")
    assert ranges.span("step") is ranges.span("forward")


def test_the_nvtx_emitter_pushes_and_pops_in_the_default_domain(monkeypatch):
    calls = []
    monkeypatch.setattr("nvtx.push_range", lambda *args, **kwargs: calls.append(("push", args, kwargs)))
    monkeypatch.setattr("nvtx.pop_range", lambda *args, **kwargs: calls.append(("pop", args, kwargs)))
    ranges.emit_ranges("nvtx")
    with ranges.span("step"), ranges.span("forward"):
        pass
    pop = ("pop", (), {})
    assert calls == [("push", ("step",), {}), ("push", ("forward",), {}), pop, pop]


def test_a_range_ends_when_its_body_raises(monkeypatch):
    pops = []
    monkeypatch.setattr("nvtx.pop_range", lambda: pops.append("pop"))
    ranges.emit_ranges("nvtx")
    with pytest.raises(RuntimeError), ranges.span("step"):
        raise RuntimeError
    assert pops == ["pop"]


def test_without_the_nvtx_package_the_emitter_says_so_when_it_is_chosen(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvtx", None)
    with pytest.raises(ModuleNotFoundError, match="pip install nvtx"):
        ranges.emit_ranges("nvtx")


def test_an_unknown_emitter_is_named():
    with pytest.raises(ValueError, match="unknown range emitter 'itt'; known are none, nvtx, record_function"):
        ranges.emit_ranges("itt")


def test_a_name_that_pytorchs_profiler_would_lose_is_kept_in_the_capture(tmp_path):
    ranges.emit_ranges("record_function")
    try:
        with profile(use_kineto=True) as recording, ranges.span('\u6ce8\u610f "attention" \\'):
            torch.ones(2)
    finally:
        ranges.emit_ranges("none")
    export_capture(recording, tmp_path / "capture.sqlite", on_gpu=False, torch_version=torch.__version__)
    with Trace(tmp_path / "capture.sqlite") as trace:
        assert trace.ranges()["range"].tolist() == ['\u6ce8\u610f "attention" \\']
