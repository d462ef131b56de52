"""Remedies, and the calls of models through which some are applied, in this process."""

import copy
import gc

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from kernel_tables.record.remedies import Remedies
from kernel_tables.record.timer import ModelCalls


class Noted(dict):
    """Stands for the notes: the lines and reasons by remedy."""

    def add(self, event: str, name: str, lines: list[str], reasons: list[str]) -> None:
        self[name] = [*lines, *reasons]


@pytest.fixture
def noted(monkeypatch):
    """Notes; what remedies change in PyTorch is undone after the test."""
    for owner, name in (
        (torch.autocast, "__init__"), (gc, "freeze"), (DataLoader, "__init__"), (torch.backends.cudnn, "benchmark"),
        *((kind, "__init__") for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad)),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))
    yield Noted()
    torch.set_float32_matmul_precision("highest")
    gc.unfreeze()


def test_optimizers_are_fused_unless_the_program_says_how_or_they_cannot_be(noted):
    remedies, model = Remedies(["fused"], noted), nn.Linear(2, 2)
    assert not torch.optim.AdamW(model.parameters(), foreach=False).defaults["fused"]
    assert torch.optim.AdamW(model.parameters(), lr=0.1).defaults == {
        **torch.optim.AdamW(model.parameters(), lr=0.1, foreach=False).defaults, "fused": True, "foreach": None,
    }  # fmt: skip
    (group,) = torch.optim.SGD([{"params": model.parameters()}], differentiable=True).param_groups
    assert not group["fused"] and len(group["params"]) == 2
    assert not torch.optim.Adam([torch.ones(1, dtype=torch.cfloat)]).defaults["fused"]
    remedies.check()
    assert {"AdamW(..., fused=True)", "the program passes foreach=False itself"} < {*noted["fused"]}
    resumed = torch.optim.Adam(model.parameters())
    resumed.param_groups[0]["fused"] = None  # as by load_state_dict
    remedies.check()
    assert len(noted["fused"]) == 1 and "sets it back" in noted["fused"][0]


def test_loaders_get_workers_unless_the_program_sets_them_or_samples_would_repeat(noted):
    class Stream(IterableDataset):
        def __iter__(self):
            yield 1

    remedies = Remedies(["workers"], noted)
    assert DataLoader(Stream()).num_workers == 0
    assert DataLoader([1, 2], 2, num_workers=1, persistent_workers=True, pin_memory=True).num_workers == 1
    loader = DataLoader([1, 2], 2, False, None, None, 0)
    assert loader.num_workers > 0 and loader.persistent_workers and loader.batch_size == 2
    remedies.check()
    assert noted["workers"][0].startswith("DataLoader(..., num_workers=") and "IterableDataset" in noted["workers"][1]


def test_a_model_gets_its_remedies_before_the_second_call(noted):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 36, 2))
    remedies = Remedies(["channels_last", "bf16", "gc_freeze", "graphs"], noted)
    with torch.autocast("cpu", enabled=False):  # as libraries do, and checkpoints
        expected = model(images := torch.randn(2, 3, 8, 8))
    call = remedies.improve(model, model._call_impl)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last) and torch.backends.cudnn.benchmark
    assert call(images).dtype == torch.float32 and 0 < (call(images) - expected).abs().max() < 0.05
    assert gc.get_freeze_count() > 0
    remedies.check()
    assert [*noted.values()] == [[noted[name][0]] for name in ("channels_last", "bf16", "gc_freeze")] + [[]]  # no GPU


def test_channels_last_after_a_step_trains_as_if_it_had_been_so_before(noted):
    images, losses = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0)), []
    for name in ("none", "channels_last"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        for step in range(20):
            (loss := model(images).square().mean()).backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 0 and name == "channels_last":
                Remedies([name], noted).improve(model, model._call_impl)
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of inductor
def test_a_model_of_torch_nn_is_compiled_as_its_line_says(noted):
    torch._dynamo.utils.counters.clear()
    remedies, model = Remedies(["compile"], noted), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    call = remedies.improve(model, model._call_impl)
    remedies.check()
    assert noted["compile"] == ["torch.compile compiled nothing of the model"]
    call = remedies.improve(model, model._call_impl)
    assert torch.allclose(call(torch.ones(1, 2)), model(torch.ones(1, 2)))
    remedies.check()
    assert noted["compile"][0] == "model = torch.compile(model)  # Sequential"


def test_what_the_program_set_itself_stays(noted):
    torch._dynamo.utils.counters.clear()
    remedies = Remedies(["channels_last", "bf16", "gc_freeze", "compile"], noted)
    torch.compile(lambda inputs: inputs + 1, backend="eager")(torch.ones(1))
    gc.freeze()
    with torch.autocast("cpu", torch.bfloat16):
        model = nn.Conv2d(1, 2, 3).to(memory_format=torch.channels_last)
    torch.backends.cudnn.benchmark = True
    assert remedies.improve(model, model._call_impl) == model._call_impl
    remedies.check()
    assert all("itself" in reason for (reason,) in noted.values()) and len(noted) == 4


def test_calls_of_models_are_told_without_hooks_from_the_third_on_and_not_those_inside(monkeypatch):
    monkeypatch.setattr(nn.Module, "compile", nn.Module.compile)

    class Wrapper(nn.Module):  # without parameters, as a solver's, so the model is what it calls
        def forward(self, call, inputs):
            return call(inputs)

    model, inputs, told, improved = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), torch.ones(1, 2), [], []
    calls = ModelCalls(lambda of, call: improved.append(of) or (lambda *given: call(*given) + 1))
    calls.before, calls.after = told.append, lambda output: told.append(output.shape)
    calls.begin()
    first = Wrapper()(model, inputs)
    assert told == [model] and torch.nn.modules.module._global_forward_pre_hooks
    second, third = Wrapper()(model, inputs), Wrapper()(model, inputs)
    assert not torch.nn.modules.module._global_forward_pre_hooks and torch.equal(first, second)
    assert told == [model, *[model, first.shape] * 2] and improved == [model] and torch.equal(third, first + 1)
    model.compile(backend="eager")  # by the program, after its first calls
    assert torch.equal(model(inputs), third) and len(told) == 7
    copied = copy.deepcopy(model)
    copied[0].weight.data.zero_()
    assert not torch.equal(copied(inputs), model(inputs)) and len(told) == 9
