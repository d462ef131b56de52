"""The recorder of this process, its facts about the model, and its files."""

import pickle
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from cs336_model.model.optimizer import local_part
from cs336_model.program.memory.allocator import AllocatorMemory
from cs336_model.program.memory.dtypes import FirstStepDtypes
from cs336_model.program.memory.history import write
from cs336_model.program.memory.processor import ProcessorMemory
from cs336_model.program.parallel.ranks import this_rank
from cs336_model.program.parallel.sharding import state_of
from cs336_model.program.steps import Subject

Recorder = AllocatorMemory | ProcessorMemory
SNAPSHOT = "memory_snapshot.pickle"


def recorder_on(device: torch.device) -> Recorder:
    """Starts a recorder of this device's memory."""
    return AllocatorMemory(device) if device.type == "cuda" else ProcessorMemory()


def save_memory(recorder: Recorder, subject: Subject | None, dtypes: FirstStepDtypes | None, path: Path) -> None:
    """Ends the recording, and writes the history to `path` and, in the first rank, the snapshot, if any, next to it.
    Without a subject (memory ran out while it was made), nothing is known to be held by it."""
    recording = recorder.ended(held_by(subject) if subject else {})
    recording.dtypes = dtypes.rows() if dtypes else []
    write(recording.as_record(), path)
    if this_rank().number == 0 and (snapshot := recorder.snapshot()):
        with path.with_name(SNAPSHOT).open("wb") as stream:
            pickle.dump(snapshot, stream)


def held_by(subject: Subject) -> dict[str, list[int]]:
    """The addresses of the storages that live as long as the subject does, by category."""
    return {
        "parameters": _addresses(subject.parameters),
        "gradients": _addresses(parameter.grad for parameter in subject.parameters if parameter.grad is not None),
        "optimizer state": _addresses(state_of(subject.optimizer)),
        "data": _addresses([subject.inputs, subject.targets, *subject.model.buffers(), *subject.losses]),
    }


def _addresses(tensors: Iterable[Tensor]) -> list[int]:
    return [local_part(tensor).untyped_storage().data_ptr() for tensor in tensors]
