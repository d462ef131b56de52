"""One rank of two: takes the steps of every specification, and writes what came out of each."""

import json
import sys
from pathlib import Path

import torch

from cs336_model import ranges
from cs336_model.program.accuracy import norm_of_gradients
from cs336_model.program.parallel.ranks import join_group, leave_group, this_rank
from cs336_model.program.parallel.reduction import import_late_modules
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, finite_losses, make_subject, run_steps

CPU = torch.device("cpu")


def outcome(text: str) -> dict:
    """Losses of the whole batch; whether the ranks have the same gradients, with communication and without; how many
    modules a run imports when it has its GPUs."""
    spec = read_spec(text)
    import_late_modules(spec)
    modules = len(sys.modules)
    subject = make_subject(spec, CPU)
    run_steps(subject, spec.measured_steps, PhaseClock(CPU, ranges.MEASURE, Progress()))
    losses, together = finite_losses(subject), gradients(subject)
    with subject.reduction.paused():
        run_steps(subject, 1, PhaseClock(CPU, ranges.NO_SYNC, Progress()))
    imported = len(sys.modules) - modules
    return {"losses": losses, "gradients": together, "apart": gradients(subject), "imported": imported}


def gradients(subject) -> float:
    """A number that differs where gradients do."""
    return float(norm_of_gradients(subject.parameters))


folder = Path(sys.argv[1])
join_group(CPU)
found = [outcome(text) for text in json.loads((folder / "cases.json").read_text())]
leave_group()
(folder / f"rank{this_rank().number}.json").write_text(json.dumps(found))
