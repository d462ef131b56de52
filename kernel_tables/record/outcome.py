"""The outcome of a recording: the facts in the notes of each process."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from kernel_recorder import keeping
from kernel_recorder.in_process.handover import CALLS, GRAPH, MODULE, NSYS, RANK, RANK_WAIT_S, STEPS, Settings, is_alive
from kernel_recorder.program import ProgramEnd

FINAL_EVENTS = ("saved", "lost", "refused", "exit")  # afterwards, a process neither writes a window nor starts over
ELSEWHERE = "elsewhere"  # a process came to the start of a window, but another process already had it
STEP_TIME_KEYS = ("step_before_s", "step_within_s")
STEP_NOUNS = {MODULE: "call", GRAPH: "replay"}  # what a step is called, by what defines it; otherwise "step"


def outcomes_of(
    settings: Settings, notes: list[dict], program_end: ProgramEnd, *, folder_is_gone: bool = False
) -> list[Outcome]:
    """The outcome of each process that opened a window; if one of them is a rank, of all ranks of its run, in their
    order. If no window opened, one outcome of the whole program."""
    opened_pids = [note["pid"] for note in notes if note["event"] == "open"]
    if not opened_pids:  # also if the folder is gone, and with it all notes
        return [Outcome(settings, notes, program_end, folder_is_gone=folder_is_gone)]
    rank_notes = _rank_notes(notes, opened_pids)
    pids = sorted(rank_notes, key=lambda pid: rank_notes[pid]["number"]) if rank_notes else opened_pids
    notes_by_pid = {pid: [note for note in notes if note["pid"] == pid or note["event"] == ELSEWHERE] for pid in pids}
    return [Outcome(settings, notes_by_pid[pid], program_end, rank_notes.get(pid)) for pid in pids]


def _rank_notes(notes: list[dict], pids: Collection[int]) -> dict[int, dict]:
    """By process, the last note on its rank, for all ranks of the runs of these processes; empty without ranks."""
    rank_notes = {note["pid"]: note for note in notes if note["event"] == RANK}
    runs = {rank_notes[pid]["run"] for pid in pids if pid in rank_notes}
    return {pid: note for pid, note in rank_notes.items() if note["run"] in runs}


def is_recorded(notes: list[dict]) -> bool:
    """Whether a window is written, and no other is to be expected: every process that opened one has finished or ended.
    Until RANK_WAIT_S after the first was written, the other ranks of its run are expected, too."""
    saved_s = [note["unix_s"] for note in notes if note["event"] == "saved"]
    if not saved_s:
        return False
    expected = {note["pid"] for note in notes if note["event"] == "open"}
    if time.time() <= min(saved_s) + RANK_WAIT_S:
        expected.update(_rank_notes(notes, expected))
    finished = {note["pid"] for note in notes if note["event"] in FINAL_EVENTS}
    return all(pid in finished or not is_alive(pid) for pid in expected)


@dataclass(frozen=True)
class Outcome:
    """The notes of one process, and the notes ELSEWHERE of all others; if no window opened, the notes of all processes
    of the program."""

    settings: Settings
    notes: list[dict]
    program_end: ProgramEnd
    rank_note: dict | None = None  # if there are several ranks
    folder_is_gone: bool = False  # the folder for notes and recordings was deleted

    @property
    def rank(self) -> int | None:
        """The rank of the process, None if there are not several."""
        return None if self.rank_note is None else self.rank_note["number"]

    @property
    def opened(self) -> dict | None:
        """The note on the opening of the window, with later facts about its steps; None if it did not open."""
        opened, steps = self.last_note("open"), self.last_note("steps")
        return None if opened is None else opened | (steps or {})

    @property
    def has_prelude(self) -> bool:
        """Whether the window opened before its first step, when a CUDA graph was captured. Only then a note "steps"
        tells later what a step is; otherwise the note "open" does."""
        return bool(self.expected_steps) and self.last_note("steps") is not None

    @property
    def closed(self) -> dict | None:
        """The note on the end of the window, None if it did not close."""
        return self.last_note("closed")

    @property
    def ended_in_window(self) -> bool:
        """Whether the program ended before its window did."""
        return self.opened is not None and (self.closed is None or self.closed.get("ended", False))

    @property
    def was_cut(self) -> bool:
        """Whether the window ended before it was complete: with the program, or because the program began a profile
        of its own, which the note "closed" has as `profile`."""
        return self.ended_in_window or bool(self.closed and self.closed.get("profile"))

    @property
    def ended_in_step(self) -> bool:
        """Whether the window ended inside a range `step` that the recorder opened."""
        return self.was_cut and self._has_steps and "first" in self.opened  # noted when the first step begins

    @property
    def has_recording(self) -> bool:
        """Whether the profiler wrote anything that can become a capture."""
        under_nsys = self.settings.profiler == NSYS  # it writes its records whenever and however the program ends
        return self.opened is not None if under_nsys else self.last_note("saved") is not None

    @property
    def expected_steps(self) -> int | None:
        """How many complete `step` ranges the capture should have; None if none were opened, or the end is unknown."""
        return self.closed["done"] if self._has_steps and self.closed else None

    @property
    def _has_steps(self) -> bool:
        """Whether the recorder opened ranges of steps; in windows of other kinds, it does not know the steps."""
        return self.opened is not None and self.opened["has_steps"] and self.settings.window in (STEPS, CALLS)

    def recording(self, program: str = "") -> keeping.Recording:
        """What was recorded; `program` is the command line, as `program_text` gives it."""
        opened, by_nsys = self.opened, self.settings.profiler == NSYS
        rank_count = self.rank_note["of"] if self.rank_note else 1
        facts = ({"program": program, "torch": opened["torch"]} if program else {}) | self.window_facts()
        return keeping.Recording(
            pid=opened["pid"], by_nsys=by_nsys, torch_version=opened["torch"], ended_in_step=self.ended_in_step,
            rank=self.rank, rank_count=rank_count, window_facts=facts,
        )  # fmt: skip

    def step_times_s(self) -> tuple[float | None, float | None]:
        """The median time of a step before the window and in it; None for an unknown one."""
        before_s, within_s = ((self.closed or {}).get(name) for name in STEP_TIME_KEYS)
        return before_s, within_s

    def window_facts(self) -> dict[str, object]:
        """Facts about the content of the window, for the capture: what a step is (`by`: OPTIMIZER, WEIGHTS, GRAPH or
        MODULE; its `name` and `number` among those of its kind, from 0), the `first` step and how many were `done`,
        what the program `repeated`, the calls of each step (`passes`), and what was compiled."""
        opened, closed = self.opened or {}, self.closed or {}
        facts = {name: opened[name] for name in ("by", "name", "number", "first") if name in opened}
        facts |= {name: closed[name] for name in ("done", "repeated", *STEP_TIME_KEYS) if name in closed}
        return facts | closed.get("contents", {})

    def repetitions(self) -> list[tuple[str, str, int]]:
        """(kind, name, count) of actions that the program had repeated when it ended, at most MAX_NOTED_ACTIONS."""
        return [action for note in self.notes if note["event"] == "exit" for action in note.get("repeated", ())]

    def last_note(self, event: str) -> dict | None:
        """The last note on this event, None without one."""
        return next((note for note in reversed(self.notes) if note["event"] == event), None)
