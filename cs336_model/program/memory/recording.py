"""The recorder of this process, its files, and the types of the model's numbers in its first step."""

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_iter

from cs336_model.model.optimizer import AdamW, local_part
from cs336_model.program.memory.allocator import AllocatorRecorder
from cs336_model.program.memory.cpu import CpuRecorder
from cs336_model.program.memory.history import write_history
from cs336_model.program.outputs import Output
from cs336_model.program.parallel.ranks import this_rank
from cs336_model.program.steps import Subject
from cs336_model.program.variants.effects import is_compiled

Recorder = AllocatorRecorder | CpuRecorder
SNAPSHOT = "memory_snapshot.pickle"
LOGITS, LOSS = "(logits)", "(loss)"
TENSOR_KINDS = ("parameters", "output", "gradients")  # of a module


class FirstStepDtypes:
    """Notes the types of numbers in the first step of a subject; make it before that step. If the step fails, only the
    outputs of modules that ran are known. A compiled model calls no modules, so there are no rows for it."""

    def __init__(self, subject: Subject) -> None:
        self._dtypes: dict[str, dict[str, set[str]]] = {}  # by shared name and kind
        self._modules: dict[str, set[str]] = {}  # full names by shared name
        if is_compiled(subject.spec):
            return
        modules = [(name, module) for name, module in subject.model.named_modules() if name]
        self._hooks = [module.register_forward_hook(self._hook(name)) for name, module in modules]
        subject.after_first_step = self._finish

    def rows(self) -> list[dict[str, Any]]:
        """One row per module; modules of a list share one ("blocks.*.attention"). `modules` is how many share it, the
        other entries are the types by kind. Logits and loss have rows with only an output."""
        return [
            {"module": name, "modules": len(self._modules[name])}
            | {kind: ", ".join(sorted(dtypes.get(kind, ()))) for kind in TENSOR_KINDS}
            for name, dtypes in self._dtypes.items()
        ]

    def _hook(self, name: str):
        return lambda module, arguments, output: self._note("output", name, tree_iter(output))

    def _note(self, kind: str, name: str, values: Iterable[Any]) -> None:
        shared_name = ".".join("*" if part.isdigit() else part for part in name.split("."))
        self._modules.setdefault(shared_name, set()).add(name)
        dtypes = self._dtypes.setdefault(shared_name, {}).setdefault(kind, set())
        dtypes |= {str(value.dtype).removeprefix("torch.") for value in values if isinstance(value, Tensor)}

    def _finish(self, subject: Subject, output: Output) -> None:
        for hook in self._hooks:
            hook.remove()
        for name, module in subject.model.named_modules():
            if parameters := list(module.parameters(recurse=False)):
                self._note("parameters", name or "(model)", parameters)
                self._note("gradients", name or "(model)", [parameter.grad for parameter in parameters])
        self._note("output", LOGITS, [output.logits])
        if subject.losses:
            self._note("output", LOSS, subject.losses[:1])


def recorder_on(device: torch.device) -> Recorder:
    """Starts a recorder of this device's memory."""
    return AllocatorRecorder(device) if device.type == "cuda" else CpuRecorder()


def save_memory(recorder: Recorder, subject: Subject | None, dtypes: FirstStepDtypes | None, path: Path) -> None:
    """Ends the recording, and writes the history to `path`. The first rank also writes the snapshot, if there is one,
    next to it. Without a subject (memory ran out while it was made), it is not known what holds which memory."""
    recording = recorder.finish(held_addresses(subject) if subject else {})
    recording.dtypes = dtypes.rows() if dtypes else []
    write_history(recording.as_record(), path)
    if this_rank().number == 0 and (snapshot := recorder.snapshot()):
        with path.with_name(SNAPSHOT).open("wb") as stream:
            pickle.dump(snapshot, stream)


def held_addresses(subject: Subject) -> dict[str, list[int]]:
    """The addresses of the storages that the subject holds now, by category."""
    return {
        "parameters": _addresses(subject.parameters),
        "gradients": _addresses(parameter.grad for parameter in subject.parameters if parameter.grad is not None),
        "optimizer state": _addresses(optimizer_state(subject.optimizer)),
        "data": _addresses([subject.inputs, subject.targets, *subject.model.buffers(), *subject.losses]),
    }


def optimizer_state(optimizer: AdamW | torch.optim.Optimizer | None) -> list[Tensor]:
    """The moments of the optimizer that this process keeps; PyTorch's has none before its first step."""
    if optimizer is None:
        return []
    if isinstance(optimizer, AdamW):
        return [*optimizer.first_moments, *optimizer.second_moments]
    values = [value for state in optimizer.state.values() for value in state.values()]
    return [value for value in values if isinstance(value, Tensor)]


def _addresses(tensors: Iterable[Tensor]) -> list[int]:
    return [local_part(tensor).untyped_storage().data_ptr() for tensor in tensors]
