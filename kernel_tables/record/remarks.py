"""A recording in sentences: its window, what to know about it, and what it cost."""

from collections.abc import Iterator

from kernel_recorder.contents import compilation_sentence, step_sentence
from kernel_recorder.in_process.handover import MODULE, NO_RANK, NSYS, OPTIMIZER, PROGRAM, RANGE, SECONDS, STEPS, TORCH
from kernel_recorder.outcome import ELSEWHERE, STEP_NOUNS, Outcome
from kernel_tables.clean_text import visible
from kernel_tables.units import duration

MIN_SLOWDOWN = 1.2  # ratio of the times in and before the window
PROFILERS = {NSYS: "nsys", TORCH: "PyTorch's profiler"}  # in words


def rank_phrase(outcome: Outcome) -> str:
    """The rank as a phrase: " of rank 1"; "" if there is only one rank."""
    return "" if outcome.rank is None else f" of rank {outcome.rank}"


def window_phrase(outcome: Outcome) -> str:
    """What was recorded: "steps 6 to 8 of process 123, by nsys", or "steps 6 to 8 of rank 1, process 123, by nsys"."""
    process = f"process {outcome.opened['pid']}, by {PROFILERS[outcome.settings.profiler]}"
    separator = " of" if outcome.rank is None else f"{rank_phrase(outcome)},"
    return f"{_content_phrase(outcome)}{separator} {process}"


def _content_phrase(outcome: Outcome) -> str:
    """What was recorded, without process and profiler: "steps 6 to 8"."""
    settings, opened = outcome.settings, outcome.opened
    if settings.window == SECONDS:
        return f"{settings.duration_s:g} s"
    if settings.window == PROGRAM:
        return "cudaProfilerStart to cudaProfilerStop"
    if "first" not in opened:  # the window opened for the capture of a CUDA graph, and no step began
        return "from the first capture of a CUDA graph until the program ended, without a step"
    first, done = opened["first"], outcome.closed["done"] if outcome.closed else 0
    last = first + max(done, 1) - 1
    step_kind = opened.get("by")  # what defines a step; instances of a range have none
    noun = "instance" if settings.window == RANGE else STEP_NOUNS.get(step_kind, "step")
    numbers = f"{noun} {first}" if last == first else f"{noun}s {first} to {last}"
    if settings.window == RANGE:
        return f"{numbers} of range '{visible(settings.range)}'"
    if outcome.was_cut and not done:
        return f"a part of {noun} {first}" if outcome.closed else f"from {noun} {first} until the program ended"
    rest = f" and a part of {noun} {last + 1}" if outcome.was_cut else ""
    actor = f" of {visible(opened['name'])}" if step_kind in STEP_NOUNS else ""  # the model, or "a CUDA graph"
    return f"{numbers}{rest}{actor}"


def remarks(outcome: Outcome) -> Iterator[str]:
    """What else to know about the recording, in sentences."""
    if outcome.ended_in_window:
        error = outcome.closed and outcome.closed.get("error")
        cause = f" ({visible(error)})" if error else ""
        process = "the program" if outcome.rank is None else f"rank {outcome.rank}"
        yield f"{process} ended inside the window{cause}; what was recorded until then is kept"
    if outcome.closed and outcome.closed.get("profile"):  # a profile of the program's ended the window
        yield (
            "the program started PyTorch's profiler itself, so this window ended there; what was recorded until"
            " then is kept"
        )
    elif outcome.last_note("profile"):  # the program profiled before the window, or besides nsys
        yield (
            "the program uses PyTorch's profiler itself; nsys takes the records of the GPU, so that profile may"
            " lack kernels; --profiler torch leaves that profiler to the program"
            if outcome.settings.profiler == NSYS
            else "the window starts later, since the program used PyTorch's profiler itself until then"
        )
    yield from step_sentence(outcome.window_facts())
    if outcome.has_prelude:
        yield ("the capture begins earlier, where a CUDA graph was captured; these steps alone: --under step, as below")
    yield from _later_steps_sentence(outcome)
    yield from compilation_sentence(outcome.window_facts())
    if unknown_rank := outcome.last_note(NO_RANK):
        reason = visible(unknown_rank["reason"])[:300]
        yield f"other ranks are not recorded, since the distributed run is unknown ({reason})"


def _later_steps_sentence(outcome: Outcome) -> Iterator[str]:
    """A sentence on optimizer steps after a window of calls of a model, if there were any. It advises a smaller --skip
    if there were too few steps for a window of their own, else one above the number of calls."""
    steps = max((count for kind, _, count in outcome.repetitions() if kind == OPTIMIZER), default=0)
    if outcome.settings.window == STEPS and outcome.opened.get("by") == MODULE and steps:
        skip = outcome.settings.skip
        advice = "--skip N, with N above the number of these calls," if steps > skip else f"--skip {steps - 1}"
        yield f"the program took {steps} optimizer steps after these calls; {advice} records steps instead"


def slowdown_sentence(outcome: Outcome) -> Iterator[str]:
    """A sentence on steps that took notably longer in the window than before it."""
    before_s, within_s = outcome.step_times_s()
    if before_s and within_s and within_s > MIN_SLOWDOWN * before_s:
        yield (
            f"{_step_times_phrase(before_s, within_s)}: recording, or what else ran on the machine, makes them longer,"
            " above all their idle or host time"
        )


def unrecorded_processes_sentence(outcome: Outcome) -> Iterator[str]:
    """A sentence on processes that came to the start of a window while another was recorded, if there are any."""
    if others := len({note["pid"] for note in outcome.notes if note["event"] == ELSEWHERE}):
        yield f"{others} further process{'es' if others > 1 else ''} came to such a window; the first was recorded"


def cost_sentence(outcome: Outcome) -> Iterator[str]:
    """A sentence on the time that recording took; none if the program ended before that was known."""
    if outcome.opened is None or outcome.closed is None:
        return
    saved = outcome.last_note("saved") or {"save_s": 0.0}
    # `start_s` and `stop_s` are durations, too.
    costs_s = {"to begin": outcome.opened["start_s"], "to stop": outcome.closed["stop_s"], "to write": saved["save_s"]}
    costs = ", ".join(f"{duration(1e9 * cost_s)} {purpose}" for purpose, cost_s in costs_s.items())
    text = f"recording took {duration(1e9 * sum(costs_s.values()))} of the program's time: {costs}"
    before_s, within_s = outcome.step_times_s()
    is_slowdown_told = any(slowdown_sentence(outcome))  # below the table of the capture
    if before_s and within_s and not is_slowdown_told:
        text += f"; {_step_times_phrase(before_s, within_s)}"
    yield text


def _step_times_phrase(before_s: float, within_s: float) -> str:
    """The medians of steps before the window and in it, compared in words."""
    return f"steps take {within_s / before_s:.2f} times as long in the window as before it"
