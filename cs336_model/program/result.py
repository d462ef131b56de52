"""The result of a measured process: a JSON file with the keys of `empty_result`. An operator row adds
`cells`."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from cs336_model import ranges
from cs336_model.arithmetic.flops import forward_flops, parameter_count, shape_of
from cs336_model.program.device import gpu_digest
from cs336_model.program.loaded_distributions import loaded_distributions
from cs336_model.program.loading import loaded_code
from cs336_model.program.process import Progress, process_age_seconds
from cs336_model.program.spec import RunSpec
from cs336_model.program.steps import Subject
from cs336_model.program.variants.effects import is_compiled
from cs336_model.program.variants.values import FSDP
from kernel_tables.whole_files import written_whole

SCHEMA = 1  # of a result
Result = dict[str, Any]


def planned_flops(spec: RunSpec) -> dict[str, int | None]:
    """FLOPs of a forward pass by name: "forward" (all its matrix products), then each part. {"forward": None} for
    custom models, and if attention alone runs."""
    shape = shape_of(vars(spec))
    return forward_flops(shape) if shape else {"forward": None}


def counted_flops(subject: Subject) -> dict[str, int | None]:
    """{"forward": FLOPs of the matrix products of one forward pass of the run's mode, by torch's counter}."""
    from torch.utils.flop_counter import FlopCounterMode  # slow to import, and only custom models need it

    arguments = subject.loss_arguments if ranges.LOSS in subject.spec.phases else {}
    # `forward` itself is counted, since the counter does not see into a call of a compiled model, and its hooks refuse
    # a model that returns views of its parameters. But only a call gathers the parameters of FSDP.
    must_call_model = subject.spec.dimensions["parallel"] == FSDP and not is_compiled(subject.spec)
    forward = subject.model if must_call_model else subject.model.forward
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        forward(subject.inputs, **arguments)
    return {"forward": counter.get_total_flops()}


def empty_result(spec: RunSpec, profiler: str) -> Result:
    """A result with every key and no measurement. The number of parameters is None for custom models, and if attention
    alone runs."""
    shape = shape_of(vars(spec))
    return {
        "schema": SCHEMA,
        "status": None,
        "spec": vars(spec),
        "profiler": profiler,
        "out_of_memory": None,
        "reason": None,
        "compilation": None,
        "accuracy": None,
        "step_seconds": [],
        "phase_seconds": {phase: [] for phase in ranges.PHASES},
        "phase_clock": None,
        "step_no_sync_seconds": [],
        "warmup_seconds": [],
        "warmup_phase_seconds": {phase: [] for phase in ranges.PHASES},
        "losses": [],
        "memory": None,
        "parameters": parameter_count(shape) if shape else None,
        "flops": planned_flops(spec),
        "machine": None,
        "rank_device": None,
        "cost_seconds": None,
        "ran_unix_s": None,
        "loaded": None,
        "loaded_distributions": None,
    }


def process_facts(progress: Progress, device: torch.device, targets: Iterable[str] = ()) -> Result:
    """Facts about this process: when it has run, the seconds of its stages, its GPU, and the code and package versions
    that it has loaded. `targets` are what it measures, as "package.module:name"."""
    age_s, end_s = process_age_seconds(), time.time()
    return {
        "rank_device": gpu_digest(device),
        "cost_seconds": progress.seconds | {"total": age_s},
        "ran_unix_s": [end_s - age_s, end_s],
        "loaded": loaded_code(),
        "loaded_distributions": loaded_distributions(targets),
    }


def write_result(result: Result, path: Path) -> None:
    """Writes the JSON to another file and renames it, so that nobody reads a part of it."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
