"""One rank of two: holds the first step of every specification against fp64, with a fault planted in some."""

import json
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist

from cs336_model import ranges
from cs336_model.program import accuracy as module
from cs336_model.program import subject as subjects
from cs336_model.program.accuracy import Comparison
from cs336_model.program.parallel import reduction
from cs336_model.program.parallel.ranks import ProcessRank, join_group, leave_group, this_rank
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.effects import process_settings
from cs336_model.program.variants.values import DDP

CPU = torch.device("cpu")
BUILD = module.build_model


def summed(tensor: torch.Tensor) -> None:
    """A reduction that forgets to divide."""
    dist.all_reduce(tensor)


def summed_bucket(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The same of a bucket of DistributedDataParallel."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def forgotten(tensor: torch.Tensor) -> None:
    """A reduction that reduces nothing."""
    dist.all_reduce(torch.zeros(1))


def without_memory(*arguments):
    """A maker of models that has no memory on rank 1."""
    if this_rank().number == 1:
        raise torch.OutOfMemoryError("Tried to allocate 80 GiB")
    return BUILD(*arguments)


FAULTS = {
    None: list,
    "summed": lambda: [patch.object(reduction, "reduce_to_mean", summed)],
    "not reduced": lambda: [patch.object(reduction, "reduce_to_mean", forgotten)],
    "one part": lambda: [patch.object(subjects, "this_rank", lambda: ProcessRank(0, 2))],
    "no memory for fp64": lambda: [patch.object(module, "build_model", without_memory)],
}


def errors(text: str, fault: str | None) -> dict:
    spec = read_spec(text)
    with process_settings(spec), ExitStack() as patches:
        for patched in FAULTS[fault]():
            patches.enter_context(patched)
        subject = make_subject(spec, CPU)
        if fault == "summed" and spec.dimensions["parallel"] == DDP:
            subject.model.register_comm_hook(None, summed_bucket)
        comparison = Comparison(subject)
        run_steps(subject, spec.measured_steps, PhaseClock(CPU, ranges.MEASURE, Progress()))
        return comparison.errors(subject)


folder = Path(sys.argv[1])
join_group(CPU)
rank_errors = [errors(*case) for case in json.loads((folder / "cases.json").read_text())]
leave_group()
(folder / f"rank{this_rank().number}.json").write_text(json.dumps(rank_errors))
