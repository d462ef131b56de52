"""Commands that are run in turns, and how long a step takes in each: `kernel-tables compare`, `kernel-tables try`.

A process is one sample, since the steps of a process share clocks and memory. The sides take turns, in the opposite
order in every second round, so a host that slows down steadily slows all of them. Steps are found as `record` finds
them, and timed without a profiler: the device is waited for at both ends of the window alone.
"""

import argparse
import math
import re
import shlex
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables import verdict
from kernel_tables.errors import TraceError
from kernel_tables.output import percent, say
from kernel_tables.profile import read
from kernel_tables.record import handover
from kernel_tables.record.command import default_profiler, program_of, program_text, window_of
from kernel_tables.record.keeping import write_captures
from kernel_tables.record.outcome import Outcome, is_recorded, outcomes_of
from kernel_tables.record.program import run_recorded
from kernel_tables.steps import Scope
from kernel_tables.text import Column, aligned


class Remedy(NamedTuple):
    """When a remedy is tried; see record/remedies.py for what it does."""

    codes: tuple[str, ...]  # the rules whose finding calls for it
    reason: str  # why it cannot be applied if the program says nothing about it
    on_cpu: bool = False  # whether it is tried without a GPU, where its rules cannot say whether it would help


REMEDIES = {
    "workers": Remedy(("waiting_for_data", "pageable_copy"), "the program creates no DataLoader"),
    "fused": Remedy(("unfused_optimizer",), "the program creates no Adam, AdamW, SGD or Adagrad of PyTorch"),
    "compile": Remedy(("launch_bound", "small_kernels"), "no second call of the same model was seen", on_cpu=True),
    "graphs": Remedy(("launch_bound", "small_kernels"), "no second call of the same model on a GPU was seen"),
    "channels_last": Remedy((), "no second call of the same model with nn.Conv2d was seen"),
    "gc_freeze": Remedy(("idle_host",), "no second call of the same model was seen"),
    "tf32": Remedy(("no_tensor_cores",), "there is no GPU"),
    "bf16": Remedy(("no_tensor_cores",), "no second call of the same model was seen", on_cpu=True),
}
PRECISIONS = ("fp32", "tf32", "bf16")  # each allows those before it
BASE = "as it is"  # the side of a program without remedies
NOT_MEASURED = "not measured"
AGREEMENT = 0.01  # results that agree differ by no more


@dataclass(frozen=True)
class Sample:
    """What one process gave."""

    ms: float  # of a step
    seconds: float  # that the process took
    steps: str  # which were timed, in words
    losses: list[float]
    output: list[float]
    line: str = ""  # to write into the program, for the remedies that were applied, or several
    left_out: str = ""  # why they are not applied everywhere


@dataclass
class Side:
    """A command that is measured, with the remedies that are applied in it, and what its processes gave so far."""

    name: str
    program: Sequence[str]
    remedies: tuple[str, ...] = ()
    samples: list[Sample] = field(default_factory=list)
    reason: str = ""  # why it is not measured any further


class Measurement:
    """Runs the sides in turns, as the options say. `is_over` if the budget, Ctrl-C or an error ended it, with `status`
    as the exit status."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.say, self._processes = partial(say, command=options.command), options.processes
        self._settings = handover.Settings(profiler=handover.TIMER, added_ranges=handover.NONE, **window_of(options))
        if options.processes < 1 or options.budget <= 0:
            raise TraceError("--processes has to be at least 1, and --budget more than 0 minutes")
        self._deadline_s = time.monotonic() + 60 * options.budget
        self.is_over, self.status = False, 0

    def run_in_turns(self, sides: Sequence[Side], process_s: float | None = None) -> None:
        """Runs the processes of each side, and prints the progress; before, what it costs, if it is known how long
        a process takes. Where a process fails, its side is not run again, and if it has no remedies, none is."""
        done, processes, total = 0, self._processes, self._processes * len(sides)
        minutes = f", about {total * process_s / 60:.1f} minutes" if process_s else ""
        last = self._settings.skip + self._settings.steps
        self.say(f"{total} processes in turns{minutes}; each runs until step {last}, and writes what it writes by then")
        for number in range(processes):
            for side in sides if number % 2 == 0 else sides[::-1]:
                if side.reason:
                    continue
                longest_s = max((sample.seconds for sample in side.samples or sides[0].samples), default=0.0)
                if time.monotonic() + longest_s > self._deadline_s:
                    self.is_over = True
                    self.say("the next process would exceed the --budget; what is measured counts")
                    return
                done += 1
                try:
                    sample = self._run(side)
                    if side.remedies and sample.steps != sides[0].samples[0].steps:
                        raise TraceError(f"not comparable: {sample.steps}; a larger --skip may help")
                    side.samples.append(sample)
                except KeyboardInterrupt:
                    self.is_over, self.status = True, 130
                    self.say("interrupted; what is measured counts")
                    return
                except TraceError as error:
                    side.reason = str(error)
                    self.say(f"{done} of {total}, {side.name}: {error}")
                    if not side.remedies:
                        self.is_over, self.status = True, 2
                        return
                    side.samples.clear()
                    total -= processes - number - 1
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
        timed = [one.note("timed") for one in outcomes if not one.was_cut]  # of each rank
        if len(timed) < len(outcomes) or not all(timed):
            done = outcome.closed.get("done", 0)
            raise TraceError(
                f"the program ended after {done} of the {steps} steps to time; take a smaller --steps or --skip"
                if outcome.opened and not outcome.note("lost") else outcome.missing_reason()
            )  # fmt: skip
        remedies = [next(note for note in outcome.notes if note.get("name") == name) for name in side.remedies]
        for note in remedies:
            if not note["lines"]:
                raise TraceError(f"not applied: {'; '.join(note['reasons']) or REMEDIES[note['name']].reason}")
        compiled = ", in which torch.compile compiled" if outcome.closed.get("compilations") else ""
        return Sample(
            ms=1e3 * max(one["seconds"] for one in timed) / steps,  # by timer.py; until the last rank has ended a step
            seconds=seconds, steps=f"{outcome.content_phrase()}{compiled}",
            losses=timed[0]["losses"], output=timed[0]["output"],
            line="\n".join(line for note in remedies for line in note["lines"]),
            left_out="; ".join(f"not everywhere: {reason}" for note in remedies for reason in note["reasons"]),
        )  # fmt: skip


def run_quietly(program: Sequence[str], folder: Path, settings: handover.Settings) -> list[Outcome]:
    """Runs a program until its window is over; what it prints is kept in the folder. Raises KeyboardInterrupt if a
    signal came meanwhile, and TraceError with its last line if it failed before."""
    settings.write(folder)

    def is_over() -> bool:  # and not because the program is ending by itself, maybe with an error
        notes = handover.read_notes(folder)
        return is_recorded(notes) and not any("cut_by" in note for note in notes)

    log, nsys_options = folder / "program.log", [] if settings.profiler == handover.NSYS else None
    program_end = run_recorded(program, folder, nsys_options=nsys_options, end_when=is_over, log=log)
    if program_end.interrupted:
        raise KeyboardInterrupt
    if program_end.exit_status and not is_over():
        last = log.read_text(errors="replace").strip().rpartition("\n")[2]
        raise TraceError(f"the program {program_end.phrase}; its last line: {last[:300]}")
    return outcomes_of(settings, handover.read_notes(folder), program_end)


def compare(sides: Sequence[Side]) -> pd.DataFrame:
    """A row for each side but the first, which it is compared with: what verdict.judge gives; `result`, the kind of
    what both computed (loss, output, or empty), `result_before` and `result_after` if it is a loss, by how much they
    differ (`difference`) and processes of one side do (`process_difference`), relative to the largest number; whether
    they `agree`, or with which backward pass losses begin to differ (`differs_from`); the `steps` that were timed, and
    the `line` to write into the program, both in words; `reason`, why there is no time, or why a remedy was not applied
    everywhere."""
    base, others = sides[0], sides[1:]
    samples = [(side.name, sample.ms) for side in sides for sample in side.samples]
    times = pd.Series([ms for _, ms in samples], index=[name for name, _ in samples], dtype="float64")
    pairs = pd.DataFrame({"before": base.name, "after": [side.name for side in others]})
    table = verdict.judge_samples(times, pairs, "process")  # with the ratio of geometric means
    facts = pd.DataFrame([compare_results(base, side) for side in others], index=table.index)
    table["verdict"] = table["verdict"].where(table["ratio"].notna(), NOT_MEASURED)
    firsts = [vars(side.samples[0]) if side.samples else {} for side in others]
    reasons = [side.reason or first.get("left_out", NOT_MEASURED) for side, first in zip(others, firsts, strict=True)]
    texts = {name: [first.get(name, "") for first in firsts] for name in ("steps", "line")}
    return table.join(facts).assign(reason=reasons, **texts)


def compare_results(before: Side, after: Side) -> dict[str, object]:
    """What the two computed, as columns of `compare`: the loss of the last backward pass, or the last output."""
    samples = [*before.samples, *after.samples]
    counts = {len(sample.losses) for sample in samples}
    length = min((len(sample.output) for sample in samples), default=0)
    if not (before.samples and after.samples and (min(counts) or length)):
        return {"result": "", "result_before": None, "result_after": None, "difference": None,
                "process_difference": None, "agree": None, "differs_from": math.nan}  # fmt: skip
    is_loss = min(counts) > 0
    values = [
        np.array([one.losses[-1:] if is_loss else one.output[:length] for one in side.samples])
        for side in (before, after)
    ]
    means = [of_side.mean(axis=0) for of_side in values]
    scale = np.nanmax(np.abs(means[0]), initial=0.0) or 1.0
    is_same = (means[0] == means[1]) | (np.isnan(means[0]) & np.isnan(means[1]))
    difference = float(np.where(is_same, 0.0, np.abs(means[1] - means[0])).max() / scale)
    spread = float(max(np.ptp(of_side, axis=0).max() for of_side in values) / scale)
    agree: bool | None = difference <= AGREEMENT
    is_alone = not agree and min(len(before.samples), len(after.samples)) == 1  # and the program may vary itself
    if is_alone or len(counts) > 1 or (spread > AGREEMENT and difference <= 3 * spread):
        agree = None
    losses = [float(mean[0]) for mean in means] if is_loss else [None, None]
    differs_from = math.nan
    if is_loss and agree is False:
        paths = [np.mean([one.losses for one in side.samples], axis=0) for side in (before, after)]
        differs_from = 1 + int(np.argmin(np.abs(paths[1] - paths[0]) <= AGREEMENT * np.abs(paths[0])))
    return {"result": "loss" if is_loss else "output", "result_before": losses[0], "result_after": losses[1],
            "difference": difference, "process_difference": spread if len(samples) > 2 else None,
            "agree": agree, "differs_from": differs_from}  # fmt: skip


def compare_commands(options: argparse.Namespace) -> tuple[pd.DataFrame, str, int]:
    """Runs `kernel-tables compare`: returns its table, that in words, and the exit status."""
    if not re.fullmatch(verdict.FAIL_ON, options.fail_on):
        raise TraceError(f"--fail-on {options.fail_on!r}: expected slower, faster or changed, as in 'slower 2%'")
    sides = []
    for name, text in zip(("before", "after"), options.commands, strict=True):
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise TraceError(f"{text}: {error}; quote each command once, as in 'python train.py'") from None
        sides.append(Side(name, program_of(["env", *words] if "=" in (words or [""])[0] else words)))
    measurement = Measurement(options)
    measurement.run_in_turns(sides)
    if not all(side.samples for side in sides):
        if measurement.status == 130:
            raise KeyboardInterrupt
        errors = [f"{side.name}: {side.reason}" for side in sides if side.reason]
        raise TraceError(*errors or ["--budget: it was spent before each side had a process"])
    table = compare(sides)
    failed = verdict.fails(table, options.fail_on).any()
    if failed:
        measurement.say(f"--fail-on {options.fail_on}: after is {verdict.sentence(table.iloc[0])}")
    row, samples = table.iloc[0], [side.samples for side in sides]
    varies = row["process_difference"]
    spread = f"; processes of one side differ by {percent(varies)}" if row["result"] and varies is not None else ""
    interval = f" ({row['low']:.4g} to {row['high']:.4g}, 95 % confidence)" if row["low"] > 0 else ""
    lines = [
        *(f"{side.name:9}{row[f'{side.name}_ms']:.4g} ms per step" for side in sides),
        f"ratio    {row['ratio']:.4g}{interval}, {row['used']}",
        f"verdict  {verdict.sentence(row)}",
        f"timed    {'; after: '.join(dict.fromkeys(one[0].steps for one in samples))}",
        f"results  {result_phrase(row)}{spread}",
        verdict.findable_sentence(row["findable"], min(map(len, samples))) if row["low"] > 0
        else "a side with one process has no spread, which a verdict needs: take more --processes",
    ]  # fmt: skip
    return table, "".join(f"{line}\n" for line in lines), measurement.status or int(failed)


def try_remedies(options: argparse.Namespace) -> tuple[pd.DataFrame, str, int]:
    """Runs `kernel-tables try`: returns its table, that in words, and the exit status.

    Rows are as of `compare`, each of a remedy, with `predicted_percent`, what `diagnose` says that it saves at most of
    a step, if that says so. The last one is of all remedies that helped, if there are several, with the faster one of
    `compile` and `graphs`.
    """
    program, measurement = program_of(options.program), Measurement(options)
    began_s = time.monotonic()
    measurement.say("records the program, to find where its time goes")
    predicted, reasons = find_remedies(program, options)
    seconds, sides = time.monotonic() - began_s, [Side(BASE, program)]
    sides += [Side(name, program, (name,)) for name in predicted]
    if predicted:
        measurement.run_in_turns(sides, seconds)
    tables = [compare(sides)] if sides[0].samples else []
    reasons |= {} if tables else dict.fromkeys(predicted, sides[0].reason or NOT_MEASURED)
    names = names_of_helpful(tables[0]) if tables and not measurement.is_over else ()
    if len(names) > 1:
        together = [Side(BASE, program), Side(" + ".join(names), program, names)]
        measurement.run_in_turns(together, seconds)
        tables += [compare(together)] if together[0].samples else []
    left = [{"after": name, "reason": reason} for name, reason in reasons.items()]
    table = pd.concat([*tables, pd.DataFrame(left, columns=["after", "reason"])], ignore_index=True)
    table.insert(0, "remedy", table.pop("after"))
    table.insert(1, "predicted_percent", table["remedy"].map(predicted).astype("float64"))
    table = table.drop(columns=["before", "used", "p"], errors="ignore")
    return table, trial_lines(table), measurement.status


def names_of_helpful(table: pd.DataFrame) -> tuple[str, ...]:
    """The remedies that helped; of `compile` and `graphs` the faster one."""
    rows = table[table["verdict"] == verdict.FASTER].sort_values("ratio")
    slower = [name for name in rows["after"] if name in ("compile", "graphs")][1:]
    return tuple(name for name in rows["after"] if name not in slower)


def find_remedies(
    program: Sequence[str], options: argparse.Namespace
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Records the program, and returns which remedies to try, each with the percent of a step that `diagnose` says that
    it saves at most, if that says so; and of the others, why not."""
    window = window_of(options) | {"skip": handover.DEFAULT_SKIP, "steps": handover.DEFAULT_STEPS}
    with tempfile.TemporaryDirectory(prefix="kernel-tables-") as temporary:
        folder = Path(temporary)
        outcome = run_quietly(program, folder, handover.Settings(profiler=default_profiler(), **window))[0]
        if not outcome.has_recording:
            raise TraceError(f"nothing was recorded: {outcome.missing_reason()}")
        (capture,) = write_captures(folder, folder / "capture.sqlite", [outcome.recording(program_text(program))])
        if isinstance(capture, TraceError):
            raise capture
        with read(capture) as profile:
            scope = Scope(profile, options.range or handover.STEP)
            findings = {one.code: one for one in profile.diagnose(options.range or handover.STEP)}
            on_cpu = profile.is_cpu_only
            convolving = scope.is_of_class("other/convolution") & scope.is_in_span
            has_convolutions = scope.share(scope.busy_ns(convolving)) >= 0.05
    predicted: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, remedy in REMEDIES.items():
        about = [findings[code] for code in remedy.codes if code in findings]
        gains = [one.gain_percent for one in about if not one.abstained]
        if name in PRECISIONS[PRECISIONS.index(options.precision) + 1 :]:
            reasons[name] = f"--precision {options.precision}"
        elif gains:
            predicted[name] = min(sum(gains), 100.0)
        elif (remedy.on_cpu and on_cpu) or (name == "channels_last" and has_convolutions):
            predicted[name] = None
        else:
            reasons[name] = about[0].message if len(about) == len(remedy.codes) > 0 else "no finding calls for it"
    return predicted, reasons


def trial_lines(table: pd.DataFrame) -> str:
    """The table of `try` in words."""
    rows = table[table["ratio"].notna()] if "ratio" in table else table[:0]
    columns = {
        "remedy": list(rows["remedy"]),
        "saves at most": ["–" if math.isnan(one) else f"{one:.1f} %" for one in rows["predicted_percent"]],
        "measured": [verdict.sentence(row) for _, row in rows.iterrows()],
        "results": [result_phrase(row) for _, row in rows.iterrows()],
    }
    width = get_terminal_size((120, 24)).columns
    text = aligned([Column(name, cells, "text") for name, cells in columns.items()], width)
    helpful = [row for row in rows.itertuples() if row.verdict == verdict.FASTER]
    notes = [f"timed: {one}" for one in (rows["steps"].unique() if len(rows) else [])]
    notes += [f"{row.remedy}: {line}" for row in helpful for line in row.line.split("\n")]
    notes += [f"{row.remedy}: {row.reason}" for row in table.itertuples() if row.reason]
    return "".join(f"{line}\n" for line in [*([text] if len(rows) else ["no remedy was measured", ""]), *notes])


def result_phrase(row: pd.Series) -> str:
    """Whether the results of a row agree, in words."""
    if not row["result"]:
        return "unknown: no loss, no output of a model"
    words = {True: "agree", False: "DIFFER"}.get(row["agree"], "cannot be told")
    values = f" {row['result_before']:.5g}, then {row['result_after']:.5g}" if row["result"] == "loss" else ""
    since = f" from backward pass {row['differs_from']:.0f} on" if row["differs_from"] > 0 else ""
    return f"{words}{since}: {row['result']}{values} ({percent(row['difference'])})"
