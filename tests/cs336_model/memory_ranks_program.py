"""One rank of two: records the memory of every specification, and sums the tensors that it knows."""

import json
import sys
from pathlib import Path

import torch

from cs336_model import ranges
from cs336_model.model.optimizer import local_part
from cs336_model.program.memory.recording import held_addresses, optimizer_state, recorder_on
from cs336_model.program.parallel.ranks import join_group, leave_group, this_rank
from cs336_model.program.parallel.reduction import import_late_modules
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps

CPU = torch.device("cpu")


def nbytes(tensors) -> int:
    return sum(local_part(tensor.detach()).nbytes for tensor in tensors)


def outcome(text: str) -> dict:
    spec = read_spec(text)
    import_late_modules(spec)
    recorder = recorder_on(CPU)
    ranges.emit_ranges(recorder.emitter)
    subject = make_subject(spec, CPU)
    run_steps(subject, 2, PhaseClock(CPU, ranges.WARMUP, Progress()))
    run_steps(subject, 1, PhaseClock(CPU, ranges.MEASURE, Progress()))
    record = recorder.finish(held_addresses(subject)).as_record()
    ranges.emit_ranges("none")
    sums = {
        "parameters": nbytes(subject.parameters),
        "gradients": nbytes(parameter.grad for parameter in subject.parameters),
        "optimizer state": nbytes(optimizer_state(subject.optimizer)),
    }
    return {"record": record, "sums": sums}


folder = Path(sys.argv[1])
join_group(CPU)
outcomes = [outcome(text) for text in json.loads((folder / "cases.json").read_text())]
leave_group()
(folder / f"rank{this_rank().number}.json").write_text(json.dumps(outcomes))
