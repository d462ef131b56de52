"""What rules need from a capture. Each function returns the reason why the capture lacks it, or None."""

from kernel_tables.diagnosis.context import OPTIMIZER, DiagnosisContext
from kernel_tables.diagnosis.step_rules import MIN_STEPS, differ_in_work


def kernels(context: DiagnosisContext) -> str | None:
    return None if len(context.scope.activities) else "nothing that ran was recorded"


def gpu(context: DiagnosisContext) -> str | None:
    return "the program ran on the CPU, without a GPU" if context.scope.trace.is_cpu_only else None


def calls(context: DiagnosisContext) -> str | None:
    if context.scope.has_calls:
        return None
    return "the capture lacks the names or the ends of API calls, so it is not known what the CPU waited for"


def steps(context: DiagnosisContext) -> str | None:
    if context.scope.has_steps:
        return None
    noun, name = context.scope.noun, context.scope.step_name
    return f"no {noun} ran in a range {name!r}: name the range of one step with --step-name"


def several_steps(context: DiagnosisContext) -> str | None:
    count, processes = len(context.scope.step_ranges), context.scope.processes_with_steps
    if processes > 1:
        return f"the capture has steps of {processes} processes side by side: capture one of them"
    if count >= MIN_STEPS or (count > 2 and differ_in_work(context.scope)):
        return None
    recorded = "only 1 step was" if count == 1 else f"only {count} steps were"
    chance = f"it takes {MIN_STEPS} to tell a slow step from chance"
    return f"{recorded} recorded, and {chance} (`kernel-tables record --steps`)"


def memory_kinds(context: DiagnosisContext) -> str | None:
    is_known = context.blocking.has_memory_kinds
    return None if is_known else "the capture lacks the sizes of copies and their kinds of memory"


def optimizer_range(context: DiagnosisContext) -> str | None:
    if not any(map(OPTIMIZER.match, context.scope.trace.range_paths.names)):
        return "no range is named optimizer, and what an optimizer launches looks like other elementwise work"
    if context.has_model_in_optimizer:
        return "the optimizer's range also holds work of a model, and no range named backward separates the two"
    return None


def attention_in_modules(context: DiagnosisContext) -> str | None:
    attention = context.attention
    if not attention.is_doubtful or attention.forward.any():
        return None
    return "a product, a softmax and a product follow each other outside of the model, as in some losses"


def communication(context: DiagnosisContext) -> str | None:
    has_communication = context.scope.is_of_class("communication").any()
    return None if has_communication else "no communication between processes was recorded"


def counters(context: DiagnosisContext) -> str | None:
    return None if context.filling else "no counters of Nsight Compute, which `kernel-tables diagnose --counters` reads"
