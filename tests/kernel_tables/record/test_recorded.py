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
    with recording.profile() as profile:
        return profile.ranges().set_index("range")["instances"].to_dict()


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
    assert "two.sqlite" in repr(recording) and "operators" in recording._repr_html_()


def test_modules_have_ranges_and_no_hook_is_left(monkeypatch):
    monkeypatch.setattr(torch.autograd, "backward", partial(torch.autograd.backward))  # by somebody else
    model, x = Model(), torch.randn(2, 4)
    hooks = nn.modules.module._global_forward_hooks, nn.modules.module._global_forward_pre_hooks
    before = [*map(len, hooks), torch.autograd.backward]
    with kernel_tables.recorded("step", ranges="modules") as recording:
        model(x).sum().backward()
    assert [*map(len, hooks), torch.autograd.backward] == before
    assert instances(recording) == {"step": 1, "forward": 1, "Model": 2, 'strange"\n': 2, "layers": 4, "backward": 1}
    with recording.profile() as profile:
        tree = profile.ranges(tree=True).set_index("range")["gpu_time_ns"]
    path = "step > forward > Model"
    assert tree[f"{path} > layers"] + tree[f'{path} > strange"\n'] == tree[path]


def test_a_block_that_raises_leaves_no_capture_and_the_next_can_be_recorded():
    with pytest.raises(ValueError, match="mine"), kernel_tables.recorded("step") as recording:
        torch.ones(2)
        raise ValueError("mine")
    with pytest.raises(TraceError, match="there is no capture yet"):
        recording.profile()
    assert list(Path().iterdir()) == [] and "ran 1 of 1 times" in recording._repr_html_()
    Path("mine.sqlite").write_text("precious")
    for _ in range(2):
        with kernel_tables.recorded("step") as recording:
            torch.ones(2)
    assert recording.capture == Path("recording-2.sqlite")  # nothing is written over
    with (
        pytest.raises(TraceError, match="is not overwritten"),
        kernel_tables.recorded("step", ranges="modules", output="mine.sqlite"),
    ):
        raise AssertionError("the block runs though it cannot be kept")


@pytest.mark.parametrize("options", [{"steps": 0}, {"skip": -1}, {"ranges": "module"}])
def test_numbers_that_mean_nothing_are_refused(options):
    with pytest.raises(ValueError, match="at least 1"):
        kernel_tables.recorded("step", **options)
