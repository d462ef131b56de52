"""What a rule needs of a capture. Each gives why the capture cannot answer, or None where it can."""

from __future__ import annotations

from kernel_tables.diagnosis.case import ATTENTION, OPTIMIZER, Case
from kernel_tables.diagnosis.step_rules import FEWEST_STEPS


def kernels(case: Case) -> str | None:
    return None if len(case.scope.activities) else "the capture holds no kernel"


def gpu(case: Case) -> str | None:
    on_processor = case.scope.trace.is_cpu_only
    return "the capture is of a program on the processor, which launches nothing" if on_processor else None


def calls(case: Case) -> str | None:
    return None if case.scope.has_calls else "the capture lacks the names or the ends of API calls"


def steps(case: Case) -> str | None:
    if len(case.scope.steps):
        return None
    return f"no range {case.scope.step_name!r} launched a kernel: name the range of one step with --step-name"


def several_steps(case: Case) -> str | None:
    found, processes = len(case.scope.steps), case.scope.processes_with_steps
    if processes > 1:
        return f"steps of {processes} processes lie side by side: capture one of them"
    captured = "1 step was" if found == 1 else f"{found} steps were"
    return None if found >= FEWEST_STEPS else f"{captured} captured, and {FEWEST_STEPS} are needed to tell"


def memory_kinds(case: Case) -> str | None:
    known = case.blocking.tells_memory
    return None if known else "the capture lacks the sizes of copies and their kinds of memory"


def optimizer_range(case: Case) -> str | None:
    return _named(case, OPTIMIZER.match, "optimizer", "unfused optimizer kernels look like elementwise kernels")


def attention_range(case: Case) -> str | None:
    return _named(
        case, ATTENTION.search, "attention", "kernels of unfused attention are recognized only by their range"
    )


def communication(case: Case) -> str | None:
    return None if case.scope.of_class("communication").any() else "no kernel of NCCL ran"


def counters(case: Case) -> str | None:
    return None if case.filling else "this capture holds no counters of Nsight Compute"


def _named(case: Case, is_wanted, what: str, why: str) -> str | None:
    paths = case.scope.trace.range_paths
    return None if any(map(is_wanted, paths.names)) else f"no range is named {what}: {why}"
