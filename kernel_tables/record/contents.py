"""Sentences on the content of a window: what a step is, what varies between steps, what was compiled.

Each function yields its sentence, or none. `window_facts` are those of an Outcome.
"""

from collections.abc import Iterator

from kernel_recorder.in_process.handover import GRAPH, MODULE, OPTIMIZER, WEIGHTS
from kernel_tables.clean_text import visible

MAX_DIFFERENCES = 3  # kinds of calls with their counts
MAX_OPTIMIZERS = 4  # are named


def step_sentence(window_facts: dict) -> Iterator[str]:
    """What defines a step, if that is not obvious."""
    repeated = window_facts.get("repeated", ())
    optimizers = _with_numbers([visible(str(name)) for kind, name, _ in repeated if kind == OPTIMIZER])
    by, name, number = window_facts.get("by"), visible(str(window_facts.get("name"))), window_facts.get("number", 0)
    if by == OPTIMIZER and len(optimizers) > 1 and number < len(optimizers):  # the notes may not list all
        names = ", ".join([*optimizers[:MAX_OPTIMIZERS], *(["..."] if len(optimizers) > MAX_OPTIMIZERS else [])])
        yield f"the program has several optimizers ({names}); a step ends with a step of {optimizers[number]}"
    elif by == MODULE:
        yield f"a step is a call of {name}, and what follows it until the next"
    elif by == WEIGHTS:
        yield (
            f"a step begins with the first call of a model after {name} has changed the weights, since its own steps"
            " are compiled, or inside the backward pass"
        )
    elif by == GRAPH:
        yield "a step ends with each replay of a CUDA graph"


def _with_numbers(names: list[str]) -> list[str]:
    """The names, the second Adam as "Adam 2", as in the names of ranges."""
    counts = [names[:end].count(name) for end, name in enumerate(names, start=1)]
    return [name if count == 1 else f"{name} {count}" for name, count in zip(names, counts, strict=True)]


def varying_sentence(window_facts: dict) -> Iterator[str]:
    """What varies between the steps, if anything does."""
    steps, first = _calls_by_step(window_facts), window_facts.get("first", 0)
    calls = sorted({call for step in steps for call in step})
    varying = [call for call in calls if len({step.get(call, 0) for step in steps}) > 1]
    if varying:
        counts = [f"{visible(call)}: {', '.join(str(step.get(call, 0)) for step in steps)}" for call in varying]
        more = f"; and {len(varying) - MAX_DIFFERENCES} more" if len(varying) > MAX_DIFFERENCES else ""
        yield (
            f"steps {first} to {first + len(steps) - 1} call models differently, so means over them mix different"
            f" work; calls in each of them: {'; '.join(counts[:MAX_DIFFERENCES])}{more}"
        )


def odd_steps(window_facts: dict) -> set[int]:
    """The numbers, from 0, of the complete steps whose calls of models are not the most frequent ones."""
    steps = _calls_by_step(window_facts)
    usual = max(steps, key=steps.count, default={})
    return {number for number, step in enumerate(steps) if step != usual}


def _calls_by_step(window_facts: dict) -> list[dict[str, int]]:
    """For each complete step, how often it made each kind of call of a model."""
    return window_facts.get("passes", [])[: window_facts.get("done", 0)]


def compilation_sentence(window_facts: dict) -> Iterator[str]:
    """What was compiled during the window, if anything was."""
    if count := window_facts.get("compilations"):
        reasons = "; ".join(map(visible, window_facts.get("compilation_reasons", ())))
        yield (
            f"torch.compile compiled {count} graph{'s' if count > 1 else ''} inside the window, whose times include"
            " that" + (f"; what was compiled before did not fit, since {reasons}" if reasons else "")
        )
