"""Why there is no recording of a process, and what to do about it."""

from kernel_recorder.in_process.handover import CALLS, MODULE, NSYS, PROGRAM, RANGE, SECONDS, STEPS
from kernel_recorder.outcome import STEP_NOUNS, Outcome
from kernel_tables.clean_text import visible


def missing_recording_reason(outcome: Outcome) -> str:
    """Why there is no recording, and mostly what to do."""
    if outcome.folder_is_gone:
        return (
            "the temporary folder in which the program leaves its recording was deleted while it ran; set TMPDIR to"
            " a folder that nothing clears"
        )
    if error := outcome.last_note("refused") or outcome.last_note("lost"):
        return f"the recorder inside the program could not record: {visible(error['reason'])[:300]}"
    if outcome.opened is not None:
        return (
            f"the program {outcome.program_end.phrase} before PyTorch's profiler wrote its data;"
            " --profiler nsys keeps partial recordings"
        )
    return _missing_window_reason(outcome)


def _missing_window_reason(outcome: Outcome) -> str:
    if old_python := outcome.last_note("old_python"):
        return f"the program's Python is {old_python['version']}, and the recorder needs 3.11 or newer"
    if outcome.last_note("python") is None:
        return (
            "no Python of the program loaded the recorder: the program is not Python, or was started with -I, -E or -S"
        )
    if outcome.last_note("torch") is None:
        return "the program did not import PyTorch"
    return _unreached_window_reason(outcome)


def _unreached_window_reason(outcome: Outcome) -> str:
    """Why no window began, though PyTorch was imported."""
    settings = outcome.settings
    reached = max((note.get("reached", 0) for note in outcome.notes if note["event"] == "exit"), default=None)
    reached_text = "an unknown number" if reached is None else str(reached)  # of steps, calls or instances
    steps_made = sum(count for kind, _, count in outcome.repetitions() if kind != MODULE)  # replays of graphs, too
    has_optimizer = any(note.get("has_optimizer") for note in outcome.notes)
    if settings.window == STEPS and has_optimizer and not steps_made:
        return (
            "the program has an optimizer, which changed no weights between calls of a model (or all of it is"
            " compiled as one function); --calls records calls of the model instead, and --seconds S a fixed time"
        )
    if settings.window in (STEPS, CALLS) and reached == 0:
        return (
            "the program took no step of a PyTorch optimizer, and called no model; record for a fixed time with"
            " --seconds S, or a range that the program opens with --range NAME"
        )
    if outcome.last_note("profile") and settings.profiler != NSYS:
        return "the program used PyTorch's profiler itself; --profiler nsys can record it at the same time"
    repetitions = _repetitions_phrase(outcome)
    gpu_cause = ", or it did not use the GPU" if settings.profiler == NSYS else ""  # why no window of seconds opened
    return {
        STEPS: f"the window starts after step {settings.skip}, and the program made {reached_text}{repetitions};"
        " a smaller --skip starts it earlier",
        CALLS: f"the window starts after call {settings.skip} of a model, and the program made {reached_text};"
        " a smaller --skip starts it earlier",
        RANGE: f"the window starts at instance {settings.skip + 1} of range '{visible(settings.range or '')}',"
        f" and the program opened {reached_text}; compare the name, or take a smaller --skip",
        SECONDS: "the program called no module of PyTorch; record a range that it opens with --range NAME"
        if reached == 0
        else f"the program ended within the {settings.delay_s:g} s of --after, or its main thread was busy{gpu_cause}",
        PROGRAM: "the program did not call cudaProfilerStart through PyTorch",
    }[settings.window]


def _repetitions_phrase(outcome: Outcome) -> str:
    """The first three actions that the program repeated: " (4 steps of AdamW, 30 calls of GPT)"; "" without any."""
    repetitions = outcome.repetitions()
    texts = [f"{count} {STEP_NOUNS.get(kind, 'step')}s of {visible(name)}" for kind, name, count in repetitions]
    return f" ({', '.join(texts[:3])})" if texts else ""
