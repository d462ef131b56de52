"""Recording from within a script: `kernel_tables.recorded` as a context manager and as a decorator."""

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

import kernel_tables
from kernel_tables.errors import TraceError


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.add_module('strange"\n', nn.Linear(4, 4))
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])

    def forward(self, x):
        x = self._modules['strange"\n'](x)
        for layer in self.layers:
            x = layer(x)
        return x


def instances(recording):
    with recording.trace() as trace:
        return trace.ranges().set_index("range")["instances"].to_dict()


def test_a_block_is_recorded_in_a_range_of_its_name():
    with kernel_tables.recorded('st"ep') as recording:
        torch.ones(4).exp()
    assert recording.capture == Path("recording.sqlite")
    with recording.trace() as trace:
        assert trace.kernels()[["range", "kernel"]].values.tolist() == [
            ['st"ep', name] for name in trace.kernels()["kernel"]
        ]
        assert {"aten::ones", "aten::exp"} <= set(trace.kernels()["kernel"])
        assert [finding for finding in trace.check() if finding.severity == "error"] == []


def test_a_decorated_function_is_recorded_after_so_many_calls_and_then_no_more():
    calls = []

    @(recording := kernel_tables.recorded("step", skip=2, steps=2, output="two.sqlite"))
    def step(x):
        """Adds."""
        calls.append(recording.capture)
        return torch.add(x, 1)

    assert [int(step(torch.tensor(number))) for number in range(6)] == [1, 2, 3, 4, 5, 6]
    assert (step.__name__, step.__doc__) == ("step", "Adds.")
    assert calls == [None] * 4 + [Path("two.sqlite")] * 2
    assert instances(recording) == {"step": 2}


def test_modules_have_ranges_where_that_is_asked_for_and_no_hook_is_left(monkeypatch):
    monkeypatch.setattr(torch.autograd, "backward", partial(torch.autograd.backward))  # by somebody else
    model, x = Model(), torch.randn(2, 4)
    hooks = nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks
    before, backward = [len(found) for found in hooks], torch.autograd.backward
    with kernel_tables.recorded("step", ranges="modules") as recording:
        model(x).sum().backward()
    assert instances(recording) == {"step": 1, "forward": 1, "Model": 2, 'strange"\n': 2, "layers": 4, "backward": 1}
    assert ([len(found) for found in hooks], torch.autograd.backward) == (before, backward)
    with recording.trace() as trace:
        tree = trace.range_tree().set_index("range")["gpu_time_ns"]
        model = "step > forward > Model"
        assert tree[f"{model} > layers"] + tree[f'{model} > strange"\n'] == tree[model]


def test_a_call_inside_another_is_part_of_it():
    recording = kernel_tables.recorded("fall", steps=1)

    @recording
    def fall(height):
        return torch.ones(1) if height == 0 else fall(height - 1) + 1

    fall(2)
    assert instances(recording) == {"fall": 3}


def test_a_block_that_raises_leaves_no_capture_and_the_next_can_be_recorded():
    with pytest.raises(ValueError, match="mine"), kernel_tables.recorded("step") as recording:
        torch.ones(2)
        raise ValueError("mine")
    with pytest.raises(TraceError, match="not recorded yet"):
        recording.trace()
    assert list(Path().iterdir()) == []
    with kernel_tables.recorded("step") as recording:
        torch.ones(2)
    assert instances(recording) == {"step": 1}


def test_nothing_is_written_over():
    Path("mine.sqlite").write_text("precious")
    with (
        pytest.raises(TraceError, match="is not overwritten"),
        kernel_tables.recorded("step", output="mine.sqlite"),
    ):
        raise AssertionError("the block runs though it cannot be kept")
    for _ in range(2):
        with kernel_tables.recorded("step") as recording:
            torch.ones(2)
    assert recording.capture == Path("recording-2.sqlite")


def test_what_an_optimizer_runs_in_its_closure_is_not_the_optimizers():
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        loss = model(x).sum()
        loss.backward()
        return loss

    methods = torch.autograd.profiler.record_function.__enter__, torch.autograd.profiler.record_function.__exit__
    with kernel_tables.recorded("step", ranges="modules") as recording:
        optimizer.step(closure)
    now = torch.autograd.profiler.record_function.__enter__, torch.autograd.profiler.record_function.__exit__
    assert now == methods
    with recording.trace() as trace:
        tree = trace.range_tree()
    assert set(tree.loc[tree["depth"] == 1, "range"]) == {
        "step > forward", "step > backward", "step > Optimizer.step#SGD.step",
    }  # fmt: skip


def test_numbers_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="steps at least 1"):
        kernel_tables.recorded("step", steps=0)


def test_a_rank_may_name_its_capture_as_it_likes_beside_those_of_others(tmp_path):
    (tmp_path / "trace_rank1.sqlite").write_text("of another rank, which was faster")
    with kernel_tables.recorded("step", output=tmp_path / "trace.sqlite") as recording:
        torch.ones(2) + 1
    assert recording.capture == tmp_path / "trace.sqlite"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's imports use what PyTorch has deprecated
def test_kernels_of_a_model_that_is_compiled_after_the_creation_are_in_its_modules_and_inductor_is_as_before():
    config = pytest.importorskip("torch._inductor.config")
    plain = config.fx_graph_cache, config.cpp.enable_kernel_profile, config.trace.provenance_tracking_level
    paths = []
    for compiled in (False, True):
        torch._dynamo.reset()
        model = Model()
        called = torch.compile(model) if compiled else model
        step = kernel_tables.recorded("step", skip=1, ranges="modules")
        for _ in range(2):
            with step, torch.no_grad():  # a backward pass takes a C++ compiler
                called(torch.randn(2, 4))
        with step.trace() as trace:
            kernels = trace.kernels("step")
        products = kernels[kernels["kernel"].isin(["aten::addmm", "aten::linear"])]
        paths.append(products.groupby("range")["launches"].sum().to_dict())
    assert paths[0] == paths[1] and len(paths[0]) == 2
    assert plain == (config.fx_graph_cache, config.cpp.enable_kernel_profile, config.trace.provenance_tracking_level)
