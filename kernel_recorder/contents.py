"""Sentences on the content of a window: what a step is, what varies between steps, what was compiled."""

from collections.abc import Iterator

from kernel_tables.clean_text import visible

MOST_DIFFERENCES = 3
MOST_OPTIMIZERS = 4  # are named


def step_sentence(window: dict) -> Iterator[str]:
    """What defines a step, if that is not obvious."""
    optimizers = _numbered([visible(str(name)) for kind, name, _ in window.get("repeated", ()) if kind == "optimizer"])
    by, name, number = window.get("by"), visible(str(window.get("name"))), window.get("number", 0)
    if by == "optimizer" and 1 < len(optimizers) > number:
        names = ", ".join([*optimizers[:MOST_OPTIMIZERS], *(["..."] if len(optimizers) > MOST_OPTIMIZERS else [])])
        yield f"the program has several optimizers ({names}); a step ends with a step of {optimizers[number]}"
    elif by == "module":
        yield f"a step is a call of {name}, and what follows it until the next"
    elif by == "weights":
        yield (
            f"a step begins with the first call of a model after {name} has changed the weights, since its own steps"
            " are compiled, or inside the backward pass"
        )
    elif by == "graph":
        yield "a step ends with each replay of a CUDA graph"


def _numbered(names: list[str]) -> list[str]:
    """The names, the second Adam as "Adam 2", as in the names of ranges."""
    counts = [names[:place].count(name) for place, name in enumerate(names, start=1)]
    return [name if count == 1 else f"{name} {count}" for name, count in zip(names, counts, strict=True)]


def varying_sentence(window: dict) -> Iterator[str]:
    """What varies between the steps, if anything does."""
    passes, first = window.get("passes", [])[: window.get("done", 0)], window.get("first", 0)
    texts = sorted({text for step in passes for text in step})
    varying = [text for text in texts if len({step.get(text, 0) for step in passes}) > 1]
    if varying:
        counts = [f"{visible(text)}: {', '.join(str(step.get(text, 0)) for step in passes)}" for text in varying]
        more = f"; and {len(varying) - MOST_DIFFERENCES} more" if len(varying) > MOST_DIFFERENCES else ""
        yield (
            f"steps {first} to {first + len(passes) - 1} call models differently, so means over them mix different"
            f" work; calls in each of them: {'; '.join(counts[:MOST_DIFFERENCES])}{more}"
        )


def odd_steps(window: dict) -> set[int]:
    """The numbers of the steps that call models differently than most, from 0."""
    passes = window.get("passes", [])[: window.get("done", 0)]
    usual = max(passes, key=passes.count, default={})
    return {number for number, step in enumerate(passes) if step != usual}


def compilation_sentence(window: dict) -> Iterator[str]:
    """What was compiled during the window, if anything was."""
    if count := window.get("compilations"):
        reasons = "; ".join(map(visible, window.get("compilation_reasons", ())))
        yield (
            f"torch.compile compiled {count} graph{'s' if count > 1 else ''} inside the window, whose times include"
            " that" + (f"; what was compiled before did not fit, since {reasons}" if reasons else "")
        )
