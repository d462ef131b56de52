"""The outcome of a recording, from the notes of each process: what was recorded, or why nothing, in facts and words."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kernel_tables.output import duration, visible
from kernel_tables.record import handover, keeping
from kernel_tables.record.handover import Settings, is_alive
from kernel_tables.record.program import ProgramEnd

# what a step is called, by what defines it; otherwise "step"
STEP_NOUNS = {handover.MODULE: "call", handover.GRAPH: "replay"}
STEP_TIMES = ("step_before_s", "step_within_s")


def outcomes_of(settings: Settings, notes: list[dict], program_end: ProgramEnd) -> list[Outcome]:
    """The outcome of each process that opened a window; if one of them is a rank, of all ranks of its run, in their
    order. If no window opened, one outcome of the whole program."""
    opened_pids = [note["pid"] for note in notes if note["event"] == "open"]
    if not opened_pids:
        return [Outcome(settings, notes, program_end)]
    rank_notes = _rank_notes(notes, opened_pids)
    pids = sorted(rank_notes, key=lambda pid: rank_notes[pid]["number"]) or opened_pids
    notes_by_pid = {pid: [note for note in notes if note["pid"] == pid or note["event"] == "elsewhere"] for pid in pids}
    return [Outcome(settings, notes_by_pid[pid], program_end, rank_notes.get(pid)) for pid in pids]


def _rank_notes(notes: list[dict], pids: Collection[int]) -> dict[int, dict]:
    """By process, the last note on its rank, for all ranks of the runs of these processes; empty without ranks."""
    rank_notes = {note["pid"]: note for note in notes if note["event"] == "rank"}
    runs = {rank_notes[pid]["run"] for pid in pids if pid in rank_notes}
    return {pid: note for pid, note in rank_notes.items() if note["run"] in runs}


def is_recorded(notes: list[dict]) -> bool:
    """Whether a window is written, and no other is to be expected: every process that opened one has finished or ended.
    Until RANK_WAIT_S after the first was written, the other ranks of its run are expected, too."""
    saved_s = [note["unix_s"] for note in notes if note["event"] == "saved"]
    if not saved_s:
        return False
    expected = {note["pid"] for note in notes if note["event"] == "open"}
    if time.time() <= min(saved_s) + handover.RANK_WAIT_S:
        expected.update(_rank_notes(notes, expected))
    final_events = ("saved", "lost", "refused", "exit")  # afterwards, a process neither writes a window nor starts over
    finished = {note["pid"] for note in notes if note["event"] in final_events}
    return all(pid in finished or not is_alive(pid) for pid in expected)


@dataclass(frozen=True)
class Outcome:
    """The notes of one process, and the notes "elsewhere" of all others; if no window opened, the notes of all
    processes of the program."""

    settings: Settings
    notes: list[dict]
    program_end: ProgramEnd
    rank_note: dict | None = None  # if there are several ranks

    def last_note(self, event: str) -> dict | None:
        """The last note on this event, None without one."""
        return next((note for note in reversed(self.notes) if note["event"] == event), None)

    @property
    def rank(self) -> int | None:
        """The rank of the process, None if there are not several."""
        return None if self.rank_note is None else self.rank_note["number"]

    @property
    def rank_phrase(self) -> str:
        """The rank as a phrase: " of rank 1"; "" if there is only one rank."""
        return "" if self.rank is None else f" of rank {self.rank}"

    @property
    def opened(self) -> dict | None:
        """The note on the opening of the window, with later facts about its steps; None if it did not open."""
        opened = self.last_note("open")
        return None if opened is None else opened | (self.last_note("steps") or {})

    @property
    def closed(self) -> dict:
        """The note on the end of the window, {} if it did not close."""
        return self.last_note("closed") or {}

    @property
    def has_recording(self) -> bool:
        """Whether the profiler wrote anything that can become a capture. nsys does however the program ends."""
        written = self.opened if self.settings.profiler == handover.NSYS else self.last_note("saved")
        return written is not None

    @property
    def ended_in_window(self) -> bool:
        """Whether the program ended before its window did."""
        return self.opened is not None and self.closed.get("ended", not self.closed)

    @property
    def was_cut(self) -> bool:
        """Whether the window ended early: with the program, or because that began a profile of its own."""
        return self.ended_in_window or self.closed.get("profile", False)

    @property
    def _has_steps(self) -> bool:
        """Whether the recorder opened ranges of steps."""
        return self.settings.window != handover.RANGE and self.opened is not None and self.opened["has_steps"]

    @property
    def expected_steps(self) -> int | None:
        """How many complete `step` ranges the capture should have; None if none were opened, or the end is unknown."""
        return self.closed["done"] if self._has_steps and self.closed else None

    @property
    def has_prelude(self) -> bool:
        """Whether the window opened before its first step, when a CUDA graph was captured: a later note "steps" tells
        what a step is."""
        return bool(self.expected_steps) and self.last_note("steps") is not None

    def recording(self, program: str = "") -> keeping.Recording:
        """What was recorded; `program` is the command line, as `program_text` gives it. Its facts: what a step is
        (`by`: OPTIMIZER, GRAPH or MODULE; its `name`), the `first` step and how many were `done`, what the program
        `repeated`, and how many graphs it compiled."""
        opened, closed = self.opened, self.closed
        facts: dict[str, object] = {"program": program, "torch": opened["torch"]}
        facts |= {name: opened[name] for name in ("by", "name", "first") if name in opened}
        facts |= {name: closed[name] for name in ("done", "repeated", *STEP_TIMES, "compilations") if name in closed}
        return keeping.Recording(
            pid=opened["pid"], by_nsys=self.settings.profiler == handover.NSYS, torch_version=opened["torch"],
            ended_in_step=self.was_cut and self._has_steps and "first" in opened,  # noted when the first step begins
            reason_if_empty=self._reason_if_empty(),
            rank=self.rank, rank_count=self.rank_note["of"] if self.rank_note else 1, window_facts=facts,
        )  # fmt: skip

    @property
    def ended_before_a_step(self) -> bool:
        """Whether the program ended before the first step in its window did; the window may hold nothing then."""
        return self.ended_in_window and "first" in self.opened and not self.closed.get("done", 0)

    def _reason_if_empty(self) -> str:
        """Why there may be nothing in the window, without any fault; "" if there has to be something."""
        begin = f"the program ended before {self._step_noun} {self.opened.get('first')}"
        return f"{begin} launched anything; take a smaller --skip" if self.ended_before_a_step else ""

    @property
    def _step_noun(self) -> str:
        is_instance = self.settings.window == handover.RANGE  # what defines a step is not noted then
        return "instance" if is_instance else STEP_NOUNS.get(self.opened.get("by"), "step")

    def window_phrase(self) -> str:
        """What was recorded: "steps 6 to 8 of process 123, by nsys", or "steps 6 to 8 of rank 1, process 123, ..."."""
        profiler = "nsys" if self.settings.profiler == handover.NSYS else "PyTorch's profiler"
        separator = " of" if self.rank is None else f"{self.rank_phrase},"
        return f"{self._content_phrase()}{separator} process {self.opened['pid']}, by {profiler}"

    def _content_phrase(self) -> str:
        settings, opened, closed = self.settings, self.opened, self.closed
        if "first" not in opened:  # the window opened for the capture of a CUDA graph, and no step began
            return "from the first capture of a CUDA graph until the program ended, without a step"
        first, done = opened["first"], closed.get("done", 0)
        last = first + max(done, 1) - 1
        step_kind, noun = opened.get("by"), self._step_noun
        numbers = f"{noun} {first}" if last == first else f"{noun}s {first} to {last}"
        if settings.window == handover.RANGE:
            return f"{numbers} of range '{visible(settings.range)}'"
        if self.was_cut and not done:
            return f"a part of {noun} {first}" if closed else f"from {noun} {first} until the program ended"
        rest = f" and a part of {noun} {last + 1}" if self.was_cut else ""
        actor = f" of {visible(opened['name'])}" if step_kind in STEP_NOUNS else ""  # the model, or "a CUDA graph"
        return f"{numbers}{rest}{actor}"

    def remarks(self) -> Iterator[str]:
        """What else to know about the recording, in sentences."""
        if self.ended_in_window:
            cause = f" ({visible(self.closed['error'])})" if self.closed.get("error") else ""
            process = "the program" if self.rank is None else f"rank {self.rank}"
            yield f"{process} ended inside the window{cause}; what was recorded until then is kept"
        if self.ended_before_a_step:
            yield f"no {self._step_noun} in the window is complete; take a smaller --skip"
        if self.closed.get("profile"):
            yield "the program started PyTorch's profiler itself, so this window ended there; what was recorded is kept"
        elif self.last_note("profile") and self.settings.profiler == handover.NSYS:
            yield "the program uses PyTorch's profiler itself, which may lack kernels beside nsys (--profiler torch)"
        elif self.last_note("profile"):
            yield "the window starts later, since the program used PyTorch's profiler itself until then"
        yield from self._step_sentence()
        if self.has_prelude:
            yield "the capture begins earlier, where a CUDA graph was captured; these steps alone: --under step"
        if count := self.closed.get("compilations"):
            graphs = f"{count} graph{'s' if count > 1 else ''}"
            yield f"torch.compile compiled {graphs} inside the window, whose times include that"

    def _step_sentence(self) -> Iterator[str]:
        """What defines a step, if that is not obvious."""
        by, name = self.opened.get("by"), visible(str(self.opened.get("name")))
        optimizers = [action for action in self.closed.get("repeated", ()) if action[0] == handover.OPTIMIZER]
        if by == handover.OPTIMIZER and len(optimizers) > 1:
            yield f"a step ends with a step of {name}, one of the program's {len(optimizers)} optimizers"
        elif by == handover.MODULE:
            yield f"a step is a call of {name}, and what follows it until the next"
        elif by == handover.GRAPH:
            yield "a step ends with each replay of a CUDA graph"

    def cost_sentence(self) -> Iterator[str]:
        """A sentence on the time that recording took, and on further processes that came to the start of a window;
        none on the time if the program ended before that was known."""
        if others := len({note["pid"] for note in self.notes if note["event"] == "elsewhere"}):
            yield f"{others} further process{'es' if others > 1 else ''} came to such a window; the first was recorded"
        if self.closed:
            saved = self.last_note("saved") or {"save_s": 0.0}
            costs_s = {"begin": self.opened["start_s"], "stop": self.closed["stop_s"], "write": saved["save_s"]}
            costs = ", ".join(f"{duration(1e9 * cost_s)} to {purpose}" for purpose, cost_s in costs_s.items())
            text = f"recording took {duration(1e9 * sum(costs_s.values()))} of the program's time: {costs}"
            before_s, within_s = (self.closed.get(name) for name in STEP_TIMES)
            if before_s and within_s:  # recording, or what else ran on the machine, makes steps longer
                text += f"; steps take {within_s / before_s:.2f} times as long in the window as before it"
            yield text

    def missing_reason(self) -> str:
        """Why there is no recording, and mostly what to do."""
        if error := self.last_note("refused") or self.last_note("lost"):
            return f"the recorder inside the program could not record: {visible(error['reason'])[:300]}"
        if self.opened is not None:
            return (
                f"the program {self.program_end.phrase} before PyTorch's profiler wrote its data;"
                " --profiler nsys keeps partial recordings"
            )
        if old_python := self.last_note("old_python"):
            return f"the program's Python is {old_python['version']}, and the recorder needs 3.11 or newer"
        if self.last_note("python") is None:
            return (
                "no Python of the program loaded the recorder: the program is not Python, or was started with -I, -E"
                " or -S"
            )
        if self.last_note("torch") is None:
            return "the program did not import PyTorch"
        if self.last_note("profile") and self.settings.profiler != handover.NSYS:
            return "the program used PyTorch's profiler itself; --profiler nsys can record it at the same time"
        return self._unreached_reason()

    def _unreached_reason(self) -> str:
        """Why no window began, though PyTorch was imported."""
        settings, exits = self.settings, [note for note in self.notes if note["event"] == "exit"]
        reached = max((note.get("reached", 0) for note in exits), default=0)  # steps, calls or instances
        repeated = [action for note in exits for action in note.get("repeated", ())]
        if not exits:
            return f"the program {self.program_end.phrase} before a window began"
        if settings.window == handover.RANGE:
            return (
                f"the window starts at instance {settings.skip + 1} of range '{visible(settings.range or '')}', and the"
                f" program opened {reached}; compare the name, or take a smaller --skip"
            )
        if not reached and any(note.get("has_optimizer") for note in exits):
            return (
                "the program has an optimizer, and PyTorch tells of no step of it (it is compiled, or steps in backward"
                " passes); --calls records calls of the model instead"
            )
        if not reached:
            return (
                "the program took no step of a PyTorch optimizer, and called no model; record a range that the program"
                " opens with --range NAME"
            )
        begin = f"step {settings.skip}" if settings.window == handover.STEPS else f"call {settings.skip} of a model"
        made = [f"{count} {STEP_NOUNS.get(kind, 'step')}s of {visible(name)}" for kind, name, count in repeated[:3]]
        return f"the window starts after {begin}, and the program made {', '.join(made)}; take a smaller --skip"
