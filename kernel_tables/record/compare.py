"""Commands that are run in turns, and how long a step takes in each: `kernel-tables compare`, `kernel-tables try`.

A process is one sample, since the steps of a process share clocks and memory. The sides take turns, in the opposite
order in every second round, so a host that slows down steadily slows all of them. Steps are found as `record` finds
them, and timed without a profiler: the device is waited for at both ends of the window alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kernel_tables import verdict
from kernel_tables.errors import TraceError
from kernel_tables.output import percent, visible
from kernel_tables.record import handover
from kernel_tables.record.outcome import Outcome, is_recorded, outcomes_of
from kernel_tables.record.program import run_recorded

if TYPE_CHECKING:
    import pandas as pd



class Remedy(NamedTuple):
    """When a remedy is tried; see record/remedies.py for what it does."""

    codes: tuple[str, ...]  # the rules whose finding calls for it
    reason: str  # why it cannot be applied if the program says nothing about it
    needs_gpu: bool = False


REMEDIES = {
    "workers": Remedy(("waiting_for_data", "pageable_copy"), "the program creates no DataLoader"),
    "fused": Remedy(("unfused_optimizer",), "the program creates no Adam, AdamW, SGD or Adagrad of PyTorch"),
    "compile": Remedy(("launch_bound", "small_kernels"), "no model with parameters is called"),
    "graphs": Remedy(("launch_bound", "small_kernels"), "no model on a GPU is called", needs_gpu=True),
    "channels_last": Remedy(("convolutions",), "no model with nn.Conv2d is called"),
    "gc_freeze": Remedy(("idle_host",), "no model with parameters is called", needs_gpu=True),
    "tf32": Remedy(("no_tensor_cores",), "there is no GPU", needs_gpu=True),
    "bf16": Remedy(("no_tensor_cores",), "no model with parameters is called"),
}
AGREEMENT = 0.01  # results differ by no more than this if they agree


@dataclass(frozen=True)
class Sample:
    """What one process gave."""

    ms: float  # of a step
    seconds: float  # that the process took
    steps: str  # which were timed, in words
    count: int  # of all steps until then
    losses: list[float]
    output: list[float]
    lines: list[str]  # to write into the program, for the remedies that were applied


@dataclass
class Side:
    """A command that is measured, with the remedies that are applied in it, and what its processes gave so far."""

    name: str
    program: Sequence[str]
    remedies: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)
    reason: str = ""  # why it is not measured any further

    def results(self) -> list[list[float]]:
        """What the program computed, by process: the last loss or, without one, numbers of the last output."""
        return [sample.losses[-1:] or sample.output for sample in self.samples]


class Measurement:
    """Runs the sides in turns. `interrupted` and `exhausted` say whether Ctrl-C or the budget ended it early."""

    def __init__(self, command: str, settings: handover.Settings, budget_s: float) -> None:
        self._command, self._settings = command, settings
        self._deadline_s = time.monotonic() + budget_s
        self.interrupted = self.exhausted = False

    def say(self, text: str) -> None:
        """Prints a line on standard error."""
        print(f"kernel-tables {self._command}: {visible(' '.join(text.split()))}", file=sys.stderr, flush=True)

    def run_in_turns(self, sides: Sequence[Side], processes: int) -> None:
        """Runs so many processes of each side, and prints the progress. A side whose process fails is not run again;
        TraceError if that is the first one, with which the others are compared."""
        done, total = 0, processes * len(sides)
        for number in range(processes):
            for side in sides if number % 2 == 0 else sides[::-1]:
                longest_s = max((sample.seconds for one in sides for sample in one.samples), default=0.0)
                self.exhausted |= time.monotonic() + longest_s > self._deadline_s
                if self.interrupted or self.exhausted:
                    return
                if side.reason:
                    continue
                done += 1
                try:
                    side.samples.append(sample := self._run(side))
                except KeyboardInterrupt:
                    self.interrupted = True
                    return
                except TraceError as error:
                    side.reason, side.samples[:] = str(error), []
                    total -= processes - number - 1
                    if side is sides[0]:
                        raise TraceError(f"{side.name}: {error}") from None
                    self.say(f"{done} of {total}, {side.name}: {error}")
                    continue
                seconds = [one.seconds for each in sides for one in each.samples]
                left_s = (total - done) * sum(seconds) / len(seconds)
                rest = f"; about {left_s:,.0f} s left" if done < total else ""
                self.say(f"{done} of {total}, {side.name}: {sample.ms:.4g} ms per step{rest}")

    def _run(self, side: Side) -> Sample:
        """Runs one process. Raises KeyboardInterrupt after a signal, and TraceError without a measurement."""
        started_s, steps = time.monotonic(), self._settings.steps
        with tempfile.TemporaryDirectory(prefix="kernel-tables-") as temporary:
            settings = replace(self._settings, remedies=side.remedies)
            outcomes = run_quietly(side.program, Path(temporary), settings)
        outcome, seconds = outcomes[0], time.monotonic() - started_s
        notes = {name: [note for note in outcome.notes if note.get("name") == name] for name in side.remedies}
        for name, about in notes.items():
            if not any("line" in note for note in about):
                raise TraceError(f"not applied: {about[0]['reason'] if about else REMEDIES[name].reason}")
        timed = [one.note("timed") for one in outcomes if not one.was_cut]  # of each rank
        if len(timed) < len(outcomes) or not all(timed):
            done = outcome.closed.get("done", 0)
            raise TraceError(
                f"the program ended after {done} of the {steps} steps to time; take a smaller --steps or --skip"
                if outcome.opened else outcome.missing_reason()
            )  # fmt: skip
        return Sample(
            ms=1e3 * max(one["seconds"] for one in timed) / steps,  # a step lasts until the last rank has ended it
            seconds=seconds, steps=outcome.content_phrase(), count=outcome.opened["first"] - 1 + steps,
            losses=timed[0]["losses"], output=timed[0]["output"],
            lines=list(dict.fromkeys(note["line"] for about in notes.values() for note in about if "line" in note)),
        )  # fmt: skip


def run_quietly(program: Sequence[str], folder: Path, settings: handover.Settings) -> list[Outcome]:
    """Runs a program until its window is over; what it prints is kept in the folder. Raises KeyboardInterrupt if a
    signal came meanwhile, and TraceError with its last line if it failed before."""
    settings.write(folder)
    program_end = run_recorded(
        program, folder, nsys_options=[] if settings.profiler == handover.NSYS else None,
        end_when=lambda: is_recorded(handover.read_notes(folder)), log=folder / "program.log",
    )  # fmt: skip
    if program_end.interrupted:
        raise KeyboardInterrupt
    notes = handover.read_notes(folder)
    if program_end.exit_status and not is_recorded(notes):
        last = (folder / "program.log").read_text(errors="replace").strip().rpartition("\n")[2]
        raise TraceError(f"the program {program_end.phrase}; its last line: {last[:300]}")
    return outcomes_of(settings, notes, program_end)


def compare(sides: Sequence[Side]) -> pd.DataFrame:
    """A row for each side but the first, which it is compared with: what verdict.judge gives; `result`, the kind of
    what both computed (loss, output, or empty), `result_before` and `result_after` if it is a loss, by how much they
    differ (`difference`) and processes of one side do (`process_difference`), relative to the largest number; whether
    they `agree`; the `line` to write into the program; `reason`, why there is no time."""
    import pandas as pd

    base, others = sides[0], sides[1:]
    samples = [(side.name, sample.ms) for side in sides for sample in side.samples]
    times = pd.Series([ms for _, ms in samples], index=[name for name, _ in samples], dtype="float64")
    pairs = pd.DataFrame({"before": base.name, "after": [side.name for side in others]})
    table = verdict.judge_samples(times, pairs, "process")
    facts = pd.DataFrame([compare_results(base, side) for side in others], columns=RESULTS, index=table.index)
    lines = ["; ".join(side.samples[0].lines) if side.samples else "" for side in others]
    return table.join(facts).assign(line=lines, reason=[side.reason for side in others])


RESULTS = ("result", "result_before", "result_after", "difference", "process_difference", "agree")


def compare_results(before: Side, after: Side) -> tuple[str, float | None, float | None, float | None, float | None, bool | None]:
    """What the two computed, as RESULTS names it. A loss is that of the last backward pass which all processes made."""
    import numpy as np

    samples = [*before.samples, *after.samples]
    count = min((len(sample.losses) for sample in samples), default=0)
    length = min((len(sample.output) for sample in samples), default=0)
    if not (before.samples and after.samples and (count or length)):
        return "", None, None, None, None, None
    values = [
        np.array([one.losses[count - 1 : count] if count else one.output[:length] for one in side.samples])
        for side in (before, after)
    ]
    means = [of_side.mean(axis=0) for of_side in values]
    scale = np.abs(means[0]).max() or 1.0
    difference = float(np.abs(means[1] - means[0]).max() / scale)
    spread = float(max(np.ptp(of_side, axis=0).max() for of_side in values) / scale)
    agree = difference <= max(AGREEMENT, spread)  # not, if any is not a number
    losses = [float(mean[0]) for mean in means] if count else [None, None]
    return "loss" if count else "output", *losses, difference, spread, agree


def comparison_lines(table: pd.DataFrame, sides: Sequence[Side]) -> str:
    """The only row of a comparison of two commands in words."""
    row, samples = table.iloc[0], [side.samples for side in sides]
    lines = [f"{side.name:9}{row[f'{side.name}_ms']:.4g} ms per step" for side in sides]
    interval = f" ({row['low']:.4g} to {row['high']:.4g}, 95 % confidence)" if row["low"] > 0 else ""
    lines += [f"{'ratio':9}{row['ratio']:.4g}{interval}, {row['used']}"]
    lines += [f"{'verdict':9}{verdict.sentence(row)}"]
    phrases = list(dict.fromkeys(one[0].steps for one in samples))
    lines += ["", f"timed: {'; then '.join(phrases)}"]
    if row["low"] > 0:
        lines += [verdict.findable_sentence(row["findable"], min(map(len, samples)))]
    else:
        lines += ["one process has no spread, which a verdict needs: take more --processes"]
    return "\n".join([*lines, result_sentence(row, samples[0][0].count)]) + "\n"


def result_sentence(row: pd.Series, steps: int) -> str:
    """Whether the results of a row agree."""
    if not row["result"]:
        return "whether the results agree is not known: no loss of a backward pass and no output of a model was seen"
    between = f"{percent(row['difference'])}; between processes of one side {percent(row['process_difference'])}"
    verb = "agree" if row["agree"] else "DIFFER"
    if row["result"] == "loss":
        return f"losses {verb}: after {steps} steps {row['result_before']:.6g}, then {row['result_after']:.6g} ({between})"
    return f"outputs {verb}: at most by {between} of the largest number"
