"""The outcome of a recording, from the notes of each process: what was recorded, or why nothing, in facts and words."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kernel_tables.output import duration, visible
from kernel_tables.record import handover, keeping
from kernel_tables.record.handover import Settings
from kernel_tables.record.program import ProgramEnd

# what a step is called, by what defines it
STEP_NOUNS = {
    handover.OPTIMIZER: "step", handover.MODULE: "call", handover.GRAPH: "replay", handover.RANGE: "instance",
}  # fmt: skip
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
    """Whether a window is written, and no other is to be expected: every process that opened one has finished, and all
    ranks of its run have opened theirs, or have not until RANK_WAIT_S after the first was written."""
    saved_s = [note["unix_s"] for note in notes if note["event"] == "saved"]
    opened = {note["pid"] for note in notes if note["event"] == "open"}
    finished = {note["pid"] for note in notes if note["event"] in ("saved", "lost", "exit")}
    rank_count = max((note["of"] for note in notes if note["event"] == "rank"), default=1)
    is_complete = len(opened) >= rank_count or time.time() > min(saved_s, default=0) + handover.RANK_WAIT_S
    return bool(saved_s) and opened <= finished and is_complete


@dataclass(frozen=True)
class Outcome:
    """The notes of one process, and the notes "elsewhere" of all others; if no window opened, the notes of all
    processes of the program."""

    settings: Settings
    notes: list[dict]
    program_end: ProgramEnd
    rank_note: dict | None = None  # if there are several ranks

    def note(self, event: str) -> dict:
        """The last note on this event, {} without one."""
        return next((note for note in reversed(self.notes) if note["event"] == event), {})

    @property
    def opened(self) -> dict:
        """The note on the opening of the window, with later facts about its steps; {} if it did not open."""
        opened = self.note("open")
        return opened and opened | self.note("steps")

    @property
    def closed(self) -> dict:
        """The note on the end of the window, {} if it did not close."""
        return self.note("closed")

    @property
    def rank_phrase(self) -> str:
        """The rank of the process as a phrase: " of rank 1"; "" if there is only one rank."""
        return f" of rank {self.rank_note['number']}" if self.rank_note else ""

    @property
    def is_by_nsys(self) -> bool:
        """Whether nsys recorded, which writes its report however the program ends."""
        return self.settings.profiler == handover.NSYS

    @property
    def has_recording(self) -> bool:
        """Whether the profiler wrote anything that can become a capture."""
        return bool(self.opened if self.is_by_nsys else self.note("saved"))

    @property
    def was_cut(self) -> bool:
        """Whether the window ended early: with the program, or because that began a profile of its own."""
        return bool(self.opened) and (not self.closed or "cut_by" in self.closed)

    @property
    def _has_steps(self) -> bool:
        """Whether the recorder opened ranges of steps."""
        return self.settings.window != handover.RANGE and bool(self.opened) and self.opened["has_steps"]

    @property
    def expected_steps(self) -> int | None:
        """How many complete `step` ranges the capture should have; None if none were opened, or the end is unknown."""
        return self.closed["done"] if self._has_steps and self.closed else None

    @property
    def has_complete_step(self) -> bool:
        """Whether a step, a call, a replay or an instance of the range is complete in the window."""
        return self.closed.get("done", 0) > 0

    @property
    def has_prelude(self) -> bool:
        """Whether the window opened before its first step, when a CUDA graph was captured: a later note "steps" tells
        what a step is."""
        return bool(self.expected_steps and self.note("steps"))

    def recording(self, program: str = "") -> keeping.Recording:
        """What was recorded; `program` is the command line, as `program_text` gives it. Its facts: what a step is
        (`by`: OPTIMIZER, GRAPH, MODULE or RANGE; its `name`), the `first` step, how many were `done`, how long they
        took, and how many graphs the program compiled."""
        facts: dict[str, object] = {"program": program}
        notes, names = self.opened | self.closed, ("torch", "by", "name", "first", "done", *STEP_TIMES, "compilations")
        facts |= {name: notes[name] for name in names if name in notes}
        rank, rank_count = (self.rank_note["number"], self.rank_note["of"]) if self.rank_note else (None, 1)
        return keeping.Recording(
            pid=self.opened["pid"], by_nsys=self.is_by_nsys, torch_version=self.opened["torch"],
            ended_in_step=self.was_cut and self._has_steps and "first" in self.opened,  # noted when the first begins
            rank=rank, rank_count=rank_count, window_facts=facts,
        )  # fmt: skip

    def window_phrase(self) -> str:
        """What was recorded: "steps 6 to 8 of process 123, by nsys", or "calls 6 to 8 of GPT of rank 1, ..."."""
        profiler = "nsys" if self.is_by_nsys else "PyTorch's profiler"
        separator = f"{self.rank_phrase}," if self.rank_phrase else " of"
        return f"{self._content_phrase()}{separator} process {self.opened['pid']}, by {profiler}"

    def _content_phrase(self) -> str:
        opened, done = self.opened, self.closed.get("done", 0)
        if "first" not in opened:  # the window opened for the capture of a CUDA graph, and no step began
            return "from the first capture of a CUDA graph until the program ended, without a step"
        noun, first = STEP_NOUNS[opened["by"]], opened["first"]
        if not self.closed:
            return f"from {noun} {first} until the program ended"
        complete = f"{noun}s {first} to {first + done - 1}" if done > 1 else f"{noun} {first}" if done else ""
        part = f"a part of {noun} {first + done}" if self.was_cut else ""
        actor = "" if opened["by"] == handover.OPTIMIZER else f" of {visible(opened['name'])}"
        return " and ".join(filter(None, (complete, part))) + actor

    def remarks(self) -> Iterator[str]:
        """What else to know about the recording, in sentences."""
        if self.was_cut:
            cause = visible(self.closed.get("cut_by", "the program ended"))
            missing = "" if self.has_complete_step else "; no step in it is complete, so take a smaller --skip"
            yield f"the window{self.rank_phrase} ended early: {cause}; what was recorded until then is kept{missing}"
        if self.note("profile") and "cut_by" not in self.closed:
            effect = "may lack kernels" if self.is_by_nsys else "starts later"
            yield f"the program uses PyTorch's profiler itself, so the recording {effect}"
        by, name = self.opened.get("by"), visible(self.opened.get("name", ""))
        optimizers = [kind for kind, *_ in self.closed.get("repeated", ()) if kind == handover.OPTIMIZER]
        if by == handover.OPTIMIZER and len(optimizers) > 1:
            yield f"a step ends with a step of {name}, one of the program's {len(optimizers)} optimizers"
        elif by == handover.MODULE:
            yield f"a step is a call of {name}, and what follows it until the next"
        elif by == handover.GRAPH:
            yield "a step ends with each replay of a CUDA graph"
        if self.has_prelude:
            yield "the capture begins earlier, where a CUDA graph was captured; these steps alone: --under step"
        if count := self.closed.get("compilations"):
            yield f"torch.compile compiled in the window, whose times include that (number of graphs: {count})"
        if others := len({note["pid"] for note in self.notes if note["event"] == "elsewhere"}):
            yield f"only the first process at the window was recorded (number of others: {others})"

    def cost_sentence(self) -> str:
        """How much time of the program recording took; "" if the program ended before that was known."""
        if not self.closed:
            return ""
        cost_s = self.opened["start_s"] + self.closed["stop_s"] + self.note("saved").get("save_s", 0.0)
        text = f"recording took {duration(1e9 * cost_s)} of the program's time"
        before_s, within_s = (self.closed.get(name) for name in STEP_TIMES)
        if before_s and within_s:  # recording, or what else ran on the machine, makes steps longer
            text += f"; steps take {within_s / before_s:.2f} times as long in the window as before it"
        return text

    def missing_reason(self) -> str:
        """Why there is no recording, and mostly what to do."""
        how_it_ended = f"the program {self.program_end.phrase}"
        if error := self.note("refused") or self.note("lost"):
            return f"the recorder inside the program could not record: {visible(error['reason'])[:300]}"
        if self.opened:
            return f"{how_it_ended} before PyTorch's profiler wrote its data; --profiler nsys keeps partial recordings"
        for event, reason in (
            ("python", "no Python of the program loaded the recorder, which needs 3.11 or newer without -I, -E and -S"),
            ("torch", "the program did not import PyTorch"),
            ("exit", f"{how_it_ended} before a window began"),
        ):
            if not self.note(event):
                return reason
        if self.note("profile") and not self.is_by_nsys:
            return "the program used PyTorch's profiler itself; --profiler nsys can record it at the same time"
        repeated = [action for note in self.notes if note["event"] == "exit" for action in note["repeated"]]
        made = [f"{count} {STEP_NOUNS[kind]}s of {visible(name)}" for kind, name, count in repeated[:3]]
        return (
            f"the window starts after {self.settings.skip} steps, calls of a model, or instances of the range, and the"
            f" program made {', '.join(made) or 'none of which PyTorch tells'}; take a smaller --skip, or record"
            " calls by --calls, or instances of a range that the program opens by --range NAME"
        )
