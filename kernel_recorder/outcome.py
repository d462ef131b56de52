"""The outcome of a recording, in sentences: what is kept or why nothing is, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kernel_recorder import contents, keeping
from kernel_recorder.in_process.handover import (
    CALLS,
    NO_RANK,
    NSYS,
    PATIENCE_S,
    PROGRAM,
    RANGE,
    RANK,
    SECONDS,
    STEPS,
    Settings,
    is_alive,
)
from kernel_recorder.program import Ended
from kernel_tables.clean_text import visible
from kernel_tables.units import duration

OVER = ("saved", "lost", "refused", "exit")  # after these notes, a process writes no window
STEP_TIMES = ("step_before_s", "step_within_s")
REPEATED = {"module": "call", "graph": "replay"}  # the name of a step without an optimizer
NOTABLE = 1.2  # times the time before the window
PROFILERS = {NSYS: "nsys", "torch": "PyTorch's profiler"}


def outcomes(settings: Settings, notes: list[dict], ended: Ended, *, folder_is_gone: bool = False) -> list[Outcome]:
    """The outcome of each recorded process, in the order of ranks; if there is none, that of the program."""
    opened = [note["pid"] for note in notes if note["event"] == "open"]
    if not opened:
        return [Outcome(settings, notes, ended, folder_is_gone=folder_is_gone)]
    ranks = _ranks_of(notes, opened)
    numbers = sorted(ranks, key=lambda pid: ranks[pid]["number"]) if ranks else opened
    notes_of = {pid: [note for note in notes if note["pid"] == pid or note["event"] == "elsewhere"] for pid in numbers}
    return [Outcome(settings, notes_of[pid], ended, ranks.get(pid)) for pid in numbers]


def _ranks_of(notes: list[dict], opened: list[int]) -> dict[int, dict]:
    """The note of each rank, by process, of the run whose ranks opened windows; empty if no rank did."""
    joined = {note["pid"]: note for note in notes if note["event"] == RANK}  # the last time that each did
    runs = {joined[pid]["run"] for pid in opened if pid in joined}
    return {pid: note for pid, note in joined.items() if note["run"] in runs}


def is_recorded(notes: list[dict]) -> bool:
    """Whether all windows that opened are written, also those of other ranks that are still expected."""
    opened, over = ({note["pid"] for note in notes if note["event"] in events} for events in (("open",), OVER))
    saved_s = [note["unix_s"] for note in notes if note["event"] == "saved"]
    if not saved_s:
        return False
    expected = opened if time.time() > min(saved_s) + PATIENCE_S else opened.union(_ranks_of(notes, list(opened)))
    return all(pid in over or not is_alive(pid) for pid in expected)


def _beside(before_s: float, within_s: float) -> str:
    """The medians of steps before the window and in it, compared in words."""
    return f"steps take {within_s / before_s:.2f} times as long in the window as before it"


@dataclass(frozen=True)
class Outcome:
    """The notes of one recorded process; if there is none, those of all processes of the program."""

    settings: Settings
    notes: list[dict]
    ended: Ended
    joined: dict | None = None  # the note on its rank, if there are several
    folder_is_gone: bool = False  # the folder for notes and recordings was deleted

    @property
    def rank(self) -> int | None:
        """Its number among several ranks."""
        return self.joined and self.joined["number"]

    @property
    def opened(self) -> dict | None:
        """The notes on the window that opened, and on its first step."""
        opened, steps = self._last("open"), self._last("steps")
        return opened and {**opened, **(steps or {})}

    @property
    def has_prelude(self) -> bool:
        """Whether the window has steps, and opened before the first of them, since a CUDA graph was captured."""
        return bool(self.expected_steps) and self._last("steps") is not None

    @property
    def closed(self) -> dict | None:
        return self._last("closed")

    @property
    def ended_inside(self) -> bool:
        """Whether the program ended before its window did."""
        return self.opened is not None and (self.closed is None or self.closed.get("ended", False))

    @property
    def was_cut(self) -> bool:
        """Whether the window ended before it was complete."""
        return self.ended_inside or bool(self.closed and self.closed.get("profile"))

    @property
    def ended_in_step(self) -> bool:
        """Whether the window ended inside a range `step` that the recorder opened."""
        return self.was_cut and self._has_steps and "first" in self.opened

    @property
    def has_recording(self) -> bool:
        """Whether the profiler wrote anything that can become a capture."""
        under_nsys = self.settings.profiler == NSYS  # it writes its records whenever and however the program ends
        return self.opened is not None if under_nsys else self._last("saved") is not None

    @property
    def expected_steps(self) -> int | None:
        """The expected number of complete ranges `step`; None if none were opened, or the number is unknown."""
        return self.closed["done"] if self._has_steps and self.closed else None

    @property
    def _has_steps(self) -> bool:
        return self.opened is not None and self.opened["has_steps"] and self.settings.window in (STEPS, CALLS)

    def recorded_process(self, program: str = "") -> keeping.RecordedProcess:
        """The recording to keep; `program` is the command line, as program_text.py writes it."""
        opened, by_nsys = self.opened, self.settings.profiler == NSYS
        rank_count = self.joined["of"] if self.joined else 1
        facts = ({"program": program, "torch": opened["torch"]} if program else {}) | self._window_facts()
        return keeping.RecordedProcess(
            opened["pid"], by_nsys, opened["torch"], self.ended_in_step, self.rank, rank_count, facts
        )

    def of_rank(self) -> str:
        """In words, where there are several: " of rank 1"."""
        return "" if self.rank is None else f" of rank {self.rank}"

    def window(self) -> str:
        """What was recorded: "steps 6 to 8 of rank 1, process 123, by nsys"."""
        process = f"process {self.opened['pid']}, by {PROFILERS[self.settings.profiler]}"
        return f"{self._what()}{self.of_rank()}, {process}" if self.of_rank() else f"{self._what()} of {process}"

    def why_nothing(self) -> str:
        """Why there is no recording."""
        if self.folder_is_gone:
            return (
                "the temporary folder in which the program leaves its recording was deleted while it ran; set TMPDIR to"
                " a folder that nothing clears"
            )
        if refused := self._last("refused") or self._last("lost"):
            return f"PyTorch's side could not record: {visible(refused['reason'])[:300]}"
        if self.opened is not None:
            return (
                f"the program {self.ended.how} before PyTorch's profiler wrote its data;"
                " --profiler nsys keeps partial recordings"
            )
        return self._why_no_window()

    def remarks(self) -> Iterator[str]:
        """Further remarks, a sentence each."""
        if self.ended_inside:
            error = self.closed and self.closed.get("error")
            because = f" ({visible(error)})" if error else ""
            who = "the program" if self.rank is None else f"rank {self.rank}"
            yield f"{who} ended inside the window{because}; what was recorded until then is kept"
        if self.closed and self.closed.get("profile"):
            yield (
                "the program started PyTorch's profiler itself, so this window ended there; what was recorded until"
                " then is kept"
            )
        elif self._last("profile"):
            yield (
                "the program uses PyTorch's profiler itself; nsys takes the records of the GPU, so that profile may"
                " lack kernels; --profiler torch leaves that profiler to the program"
                if self.settings.profiler == NSYS
                else "the window starts later, since the program used PyTorch's profiler itself until then"
            )
        yield from contents.step_sentence(self._window_facts())
        if self.has_prelude:
            yield (
                "the capture begins earlier, where a CUDA graph was captured; these steps alone: --under step, as below"
            )
        yield from self._steps_afterwards()
        yield from contents.compilation_sentence(self._window_facts())
        if unknown := self._last(NO_RANK):
            why = visible(unknown["reason"])[:300]
            yield f"other ranks are not recorded: distributed run unknown ({why})"

    def varying(self) -> Iterator[str]:
        """A sentence on what varies between the steps, if anything does."""
        return contents.varying_sentence(self._window_facts())

    def slowed(self) -> Iterator[str]:
        """A sentence on steps that took notably longer in the window than before it."""
        before, within = self._step_times()
        if before and within and within > NOTABLE * before:
            yield (
                f"{_beside(before, within)}: recording, or what else ran on the machine, makes them longer, above all"
                " their idle or host time"
            )

    def explains(self, slow_steps: Collection[int]) -> bool:
        """Whether steps with these numbers, from 0, are slow because they call models differently than the others."""
        return bool(slow_steps) and contents.odd_steps(self._window_facts()).issuperset(slow_steps)

    def _steps_afterwards(self) -> Iterator[str]:
        """A sentence on the optimizer that the program made after a window of calls, if it did."""
        steps = max((count for kind, _, count in self._repeated() if kind == "optimizer"), default=0)
        if self.settings.window == STEPS and self.opened.get("by") == "module" and steps:
            skip = self.settings.skip
            advice = "--skip N, with N above the number of these calls," if steps > skip else f"--skip {steps - 1}"
            yield f"the program took {steps} optimizer steps after these calls; {advice} records steps instead"

    def elsewhere(self) -> Iterator[str]:
        """A sentence on processes that were not recorded, if there are any."""
        if others := len({note["pid"] for note in self.notes if note["event"] == "elsewhere"}):
            yield f"{others} further process{'es' if others > 1 else ''} came to such a window; the first was recorded"

    def cost(self) -> str | None:
        """The cost of recording to the program; None if it ended before that was known."""
        if self.opened is None or self.closed is None:
            return None
        saved = self._last("saved") or {"save_s": 0.0}
        parts = {"to begin": self.opened["start_s"], "to stop": self.closed["stop_s"], "to write": saved["save_s"]}
        costs = ", ".join(f"{duration(1e9 * seconds)} {what}" for what, seconds in parts.items())
        text = f"recording took {duration(1e9 * sum(parts.values()))} of the program's time: {costs}"
        before, within = self._step_times()
        if before and within and not any(self.slowed()):  # which says the same
            text += f"; {_beside(before, within)}"
        return text

    def _step_times(self) -> list[float | None]:
        """The median seconds of a step before the window and in it, None if unknown."""
        return [(self.closed or {}).get(name) for name in STEP_TIMES]

    def _window_facts(self) -> dict[str, object]:
        """The content of the window, for the capture."""
        opened, closed = self.opened or {}, self.closed or {}
        facts = {name: opened[name] for name in ("by", "name", "number", "first") if name in opened}
        facts |= {name: closed[name] for name in ("done", "repeated", *STEP_TIMES) if name in closed}
        return facts | closed.get("contents", {})

    def _what(self) -> str:
        settings, first = self.settings, self.opened.get("first", 0)
        done = self.closed["done"] if self.closed else 0
        if settings.window in (SECONDS, PROGRAM):
            return f"{settings.seconds:g} s" if settings.window == SECONDS else "cudaProfilerStart to cudaProfilerStop"
        if settings.window != RANGE and "first" not in self.opened:
            return "from the first capture of a CUDA graph until the program ended, without a step"
        kind = REPEATED.get(self.opened.get("by"), "instance" if settings.window == RANGE else "step")
        if settings.window != RANGE and self.was_cut and not done:
            return f"a part of {kind} {first}" if self.closed else f"from {kind} {first} until the program ended"
        last = first + max(done, 1) - 1
        numbers = f"{kind} {first}" if last == first else f"{kind}s {first} to {last}"
        if settings.window == RANGE:
            return f"{numbers} of range '{visible(settings.range)}'"
        range_name = f" of {visible(self.opened['name'])}" if self.opened.get("by") in REPEATED else ""
        return numbers + (f" and a part of {kind} {last + 1}" if self.was_cut else "") + range_name

    def _why_no_window(self) -> str:
        if old := self._last("old_python"):
            return f"the program's Python is {old['version']}, and the recorder needs 3.11 or newer"
        if self._last("python") is None:
            return (
                "no Python of the program loaded the recorder: the program is not Python, or was started with"
                " -I, -E or -S"
            )
        if self._last("torch") is None:
            return "the program did not import PyTorch"
        reached = max((note.get("reached", 0) for note in self.notes if note["event"] == "exit"), default=None)
        return self._why_not_reached("none that is known" if reached is None else str(reached))

    def _why_not_reached(self, reached: str) -> str:
        settings = self.settings
        steps_made = sum(count for kind, _, count in self._repeated() if kind != "module")  # replays of graphs, too
        has_optimizer = any(note.get("has_optimizer") for note in self.notes)
        if settings.window == STEPS and has_optimizer and not steps_made:
            return (
                "the program has an optimizer, which changed no weights between calls of a model (or all of it is"
                " compiled as one function); --calls records calls of the model instead, and --seconds S a fixed time"
            )
        if settings.window in (STEPS, CALLS) and reached == "0":
            return (
                "the program took no step of a PyTorch optimizer, and called no model; record for a fixed time with"
                " --seconds S, or a range that the program opens with --range NAME"
            )
        if self._last("profile") and settings.profiler != NSYS:
            return "the program used PyTorch's profiler itself; --profiler nsys can record it at the same time"
        return {
            STEPS: f"the window starts after step {settings.skip}, and the program made {reached}{self._repetitions()};"
            " a smaller --skip starts it earlier",
            CALLS: f"the window starts after call {settings.skip} of a model, and the program made {reached};"
            " a smaller --skip starts it earlier",
            RANGE: f"the window starts at instance {settings.skip + 1} of range '{visible(settings.range or '')}',"
            f" and the program opened {reached}; compare the name, or take a smaller --skip",
            SECONDS: "the program called no module of PyTorch; record a range that it opens with --range NAME"
            if reached == "0"
            else f"the program ended within the {settings.after:g} s of --after, or its main thread was busy"
            + (", or it did not use the GPU" if settings.profiler == NSYS else ""),
            PROGRAM: "the program did not call cudaProfilerStart through PyTorch",
        }[settings.window]

    def _repeated(self) -> list[tuple[str, str, int]]:
        """What the program repeated until it ended: kind, name and count of each."""
        return [row for note in self.notes if note["event"] == "exit" for row in note.get("repeated", ())]

    def _repetitions(self) -> str:
        """The same in words: " (4 steps of AdamW, 30 calls of GPT)"."""
        texts = [f"{count} {REPEATED.get(kind, 'step')}s of {visible(name)}" for kind, name, count in self._repeated()]
        return f" ({', '.join(texts[:3])})" if texts else ""

    def _last(self, event: str) -> dict | None:
        return next((note for note in reversed(self.notes) if note["event"] == event), None)
