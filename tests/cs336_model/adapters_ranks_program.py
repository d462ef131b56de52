"""One rank of two: checks the adapters of every specification, and writes the checks or the reason."""

import json
import sys
from pathlib import Path

import torch

from cs336_model.program.adapters.checks import checks_of_adapters
from cs336_model.program.parallel.ranks import join_group, leave_group, this_rank
from cs336_model.program.spec import read_spec
from cs336_model.program.without_times import WithoutTimes

CPU = torch.device("cpu")


def outcome(text: str) -> dict:
    try:
        return {"status": "right", "checks": checks_of_adapters(read_spec(text), CPU)}
    except WithoutTimes as error:
        return {"status": error.status, "reason": str(error), "checks": error.checks}


folder = Path(sys.argv[1])
join_group(CPU)
outcomes = [outcome(text) for text in json.loads((folder / "cases.json").read_text())]
leave_group()
(folder / f"rank{this_rank().number}.json").write_text(json.dumps(outcomes))
