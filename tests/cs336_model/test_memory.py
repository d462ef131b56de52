"""The estimate of memory against every allocation of a step, followed on the meta device: no bytes are touched."""

import json
import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from cs336_model.arithmetic.flops import ModelShape
from cs336_model.arithmetic.memory import estimated_peak_bytes, saved_activation_bytes
from cs336_model.model.functional import cross_entropy
from cs336_model.model.optimizer import AdamW
from cs336_model.model.transformer import TransformerLM
from cs336_model.program.process_cost import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, Subject, run_step
from tests.cs336_model.specs import changed


class LiveBytes(TorchDispatchMode):
    """Follows the storages that operators return, from their birth to their end."""

    def __init__(self) -> None:
        super().__init__()
        self.live, self.peak, self.known = 0, 0, set()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        result = operator(*args, **(kwargs or {}))
        for tensor in tree_iter(result):
            if isinstance(tensor, torch.Tensor):
                self._follow(tensor.untyped_storage())
        return result

    def _follow(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key not in self.known:
            self.known.add(key)
            self.live += size
            self.peak = max(self.peak, self.live)
            weakref.finalize(storage, self._end, key, size)

    def _end(self, key: int, size: int) -> None:
        self.known.remove(key)
        self.live -= size


def peak_of_two_steps(spec_values: dict, shape: ModelShape, mode: str) -> int:
    spec, cpu = read_spec(json.dumps(changed(spec_values, mode=mode))), torch.device("cpu")
    with LiveBytes() as memory, torch.device("meta"):
        lm = model_of(shape)
        tokens = torch.zeros(shape.batch_size, shape.context_length, dtype=torch.int64)
        optimizer = AdamW(lm.parameters()) if mode == "train_step" else None
        subject = Subject(spec, cpu, lm, optimizer, tokens, tokens)
        memory.peak = memory.live
        for _ in range(2):
            run_step(subject, PhaseClock(cpu, "measure", Progress()))
    return memory.peak


def model_of(shape: ModelShape) -> TransformerLM:
    sizes = (shape.vocab_size, shape.context_length, shape.d_model, shape.num_layers, shape.num_heads, shape.d_ff)
    return TransformerLM(*sizes)


SHAPES = {
    "most in attention": ModelShape(4, 1024, 10_000, 768, 4, 12, 3072),
    "most in parameters": ModelShape(4, 64, 10_000, 768, 4, 12, 3072),
    "most in logits": ModelShape(4, 256, 10_000, 64, 2, 2, 256),
}


@pytest.mark.parametrize("mode", ["forward", "forward_backward", "train_step"])
@pytest.mark.parametrize("name", SHAPES)
def test_the_estimate_is_within_three_percent_of_what_a_step_allocates(spec_values, name, mode):
    found = peak_of_two_steps(spec_values, SHAPES[name], mode)
    assert estimated_peak_bytes(SHAPES[name], mode) == pytest.approx(found, rel=0.03)


def test_what_the_backward_pass_keeps_is_known_to_the_byte():
    shape, kept = SHAPES["most in attention"], {}
    with torch.device("meta"):
        lm, tokens = model_of(shape), torch.zeros(4, 1024, dtype=torch.int64)
    standing = {tensor.untyped_storage()._cdata for tensor in (*lm.parameters(), *lm.buffers(), tokens)}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = cross_entropy(lm(tokens), tokens)
    found = sum(tensor.untyped_storage().nbytes() for key, tensor in kept.items() if key not in standing)
    assert loss.requires_grad
    assert saved_activation_bytes(shape) == found
