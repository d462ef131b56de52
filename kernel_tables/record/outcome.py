"""The outcome of a recording, from the notes of each process: what was recorded, or why nothing, in facts and words."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_tables.output import visible
from kernel_tables.record import handover, keeping
from kernel_tables.record.handover import Settings
from kernel_tables.record.program import ProgramEnd

# what a step is called, by what defines it
STEP_NOUNS = {
    handover.OPTIMIZER: "step", handover.MODULE: "call", handover.GRAPH: "replay", handover.RANGE: "instance",
}  # fmt: skip


def outcomes_of(settings: Settings, notes: list[dict], program_end: ProgramEnd) -> "list[Outcome]":
    """The outcome of each process that came to the window first, which is one or all ranks of a run, in the order of
    the ranks. If no window opened, one outcome of the whole program."""
    ranks = {note["pid"]: note for note in notes if note["event"] == "rank"}
    opened = {note["pid"] for note in notes if note["event"] == "open"}
    pids = opened | {note["pid"] for note in notes if note["event"] == "refused" and note["pid"] in ranks}
    if not opened:
        return [Outcome(settings, notes, program_end)]
    notes_by_pid = {pid: [note for note in notes if note["pid"] == pid or note["event"] == "elsewhere"] for pid in pids}
    outcomes = [Outcome(settings, notes_by_pid[pid], program_end, ranks.get(pid)) for pid in pids]
    return sorted(outcomes, key=lambda outcome: outcome.rank_note["number"] if outcome.rank_note else 0)


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
    """The notes of one process, and "elsewhere" of all others; if no window opened, the notes of all processes."""

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
        """Whether the window opened before its first step, when a CUDA graph was captured; "steps" is noted later."""
        return bool(self.expected_steps and self.note("steps"))

    def recording(self, program: str) -> keeping.Recording:
        """What was recorded; `program` is the command line, as `program_text` gives it. Its facts: what a step is
        (`by`: OPTIMIZER, GRAPH, MODULE or RANGE; its `name`), the `first` step, how many were `done`, how long they
        took, and how many graphs the program compiled."""
        facts: dict[str, object] = {"program": program}
        names = ("torch", "by", "name", "first", "done", "step_before_s", "compilations")
        facts |= {name: value for name, value in (self.opened | self.closed).items() if name in names}
        rank, rank_count = (self.rank_note["number"], self.rank_note["of"]) if self.rank_note else (None, 1)
        return keeping.Recording(
            pid=self.opened["pid"], by_nsys=self.is_by_nsys, torch_version=self.opened["torch"],
            ended_in_step=self.was_cut and self._has_steps and "first" in self.opened,  # noted when the first begins
            rank=rank, rank_count=rank_count, window_facts=facts,
        )  # fmt: skip

    def window_phrase(self) -> str:
        """What was recorded: "steps 6 to 8 of AdamW, process 123, by nsys"."""
        profiler = "nsys" if self.is_by_nsys else "PyTorch's profiler"
        rank = f", rank {self.rank_note['number']}" if self.rank_note else ""
        return f"{self.content_phrase()}{rank}, process {self.opened['pid']}, by {profiler}"

    def content_phrase(self) -> str:
        """Which steps were recorded or timed: "steps 6 to 8 of AdamW"."""
        opened, done = self.opened, self.closed.get("done", 0)
        if "first" not in opened:  # the window opened for the capture of a CUDA graph, and no step began
            return "from the first capture of a CUDA graph until the program ended, without a step"
        noun, first, actor = STEP_NOUNS[opened["by"]], opened["first"], visible(opened["name"])
        if not self.closed:
            return f"from {noun} {first} of {actor} until the program ended"
        complete = f"{noun}s {first} to {first + done - 1}" if done > 1 else f"{noun} {first}" if done else ""
        part = f"a part of {noun} {first + done}" if self.was_cut else ""
        return f"{' and '.join(filter(None, (complete, part)))} of {actor}"

    def remarks(self) -> Iterator[str]:
        """What else to know about the recording, in sentences."""
        if self.was_cut:
            cause = visible(self.closed.get("cut_by", "the program ended"))
            missing = "" if self.has_complete_step else "; no step in it is complete, so take a smaller --skip"
            yield f"the window{self.rank_phrase} ended early: {cause}; what was recorded until then is kept{missing}"
        if self.note("profile") and "cut_by" not in self.closed:
            effect = "may lack kernels" if self.is_by_nsys else "starts later"
            yield f"the program uses PyTorch's profiler itself, so the recording {effect}"
        if self.has_prelude:
            yield "the capture begins earlier, where a CUDA graph was captured; these steps alone: --under step"
        if count := self.closed.get("compilations"):
            yield f"torch.compile compiled in the window, whose times include that (number of graphs: {count})"
        if others := len({note["pid"] for note in self.notes if note["event"] == "elsewhere"}):
            yield f"only the first process at the window was recorded (number of others: {others})"

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
