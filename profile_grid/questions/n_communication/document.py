"""What the document of (n) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, percent, significant, with_spread
from profile_grid.questions.n_communication.losses import BEHIND_A_REDUCTION
from profile_grid.questions.n_communication.scaling import STRONG, WEAK
from profile_grid.questions.n_communication.table import PARTS, communication_of_steps
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import CONTEXT_LENGTH, GPUS, MODE, MODEL, PARALLEL
from profile_grid.tables.accuracy import errors_table
from profile_grid.tables.apart import shown_dimensions, sorted_values
from profile_grid.tables.cells import headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import extremes, listed, places, where

NOTHING = "Not answered: no run on several GPUs has figures."
ON_PROCESSOR = (
    "The ranks are processes of one processor and share its cores: these numbers say nothing of GPUs, and what the"
    " threads of Gloo take from operators is not told apart."
)
SHARES = {STRONG: "With the same batch over all GPUs", WEAK: "With as much for each GPU as for one"}
LED_BY = (MODEL.key, CONTEXT_LENGTH.key, MODE.key, GPUS.key, PARALLEL.key)
MOST_COLLECTIVES = 40
NO_BASE = "no run on one GPU has this batch"


def sentences(measured: Measured) -> list[str]:
    """(n) Cost without a profiler; exposed, overlapped and waiting under it; bandwidth; scaling."""
    times = measured.tables["communication_times"].dropna(subset=["cost_ms"])
    steps = communication_of_steps(measured.tables["communication_steps"])
    found = [*_cost(times), *_exposed(steps), *_waiting(steps), *_bandwidth(measured), *_alone(measured)]
    found += [*_scaling(measured), *_losses(measured), *_accuracy(measured)]
    if not found:
        return [NOTHING]
    return [*found, ON_PROCESSOR] if measured.machine.on_cpu else found


def _cost(times: pd.DataFrame) -> list[str]:
    """What a step takes longer than without communication where that is more than both scatter, and which variant pays
    least."""
    clear = times[times["cost_ms"].abs() > times["std_ms"].fillna(0) + times["without_std_ms"].fillna(0)]
    said, unclear = [], len(times) - len(clear)
    if len(clear):
        costs = extremes(clear, "cost_share", lambda row: percent(row["cost_share"]))
        said.append(f"Of a step communication costs {costs}.")
    if len(clear) > 1:
        least = clear.loc[clear["cost_share"].idxmin()]
        paid = with_spread(least["mean_ms"], least["std_ms"], "ms")
        without = with_spread(least["without_mean_ms"], least["without_std_ms"], "ms")
        it = "Where that can be told it" if unclear else "It"  # it may cost less where it cannot
        said.append(f"{it} costs least in {where(least)}: {paid} beside {without} without communication.")
    if unclear:
        said.append(
            f"In {unclear} of {len(times)} configurations steps with and without communication scatter by more than"
            " they differ, and no cost can be told."
        )
    return said


def _exposed(steps: pd.DataFrame) -> list[str]:
    """By variant: communication, what of it nothing is computed beside, and the overlap."""
    said = []
    for value in sorted_values(steps, PARALLEL.key):
        own = steps[(steps[PARALLEL.key] == value) & (steps["communication_ms"] > 0)]
        if len(own):
            said.append(
                f"{PARALLEL.words(value)} communication takes {interval(own['communication_share'], percent)} of a"
                f" captured step, exposed communication {interval(own['exposed_share'], percent)}, and"
                f" {interval(own['overlap'], percent)} of communication runs beside computation"
            )
    return [f"{'; '.join(said)}.".replace("by ", "By ", 1)] if said else []


def _waiting(steps: pd.DataFrame) -> list[str]:
    """How much of the collectives is waiting for the slowest rank."""
    known = steps[steps["waiting_share"].notna()]
    if known.empty:
        return []
    most = extremes(known, "waiting_share", lambda row: f"{percent(row['waiting_share'])} on rank {row['rank']}")
    return [f"Of the time of collectives there is waiting for the slowest rank {most}."]


def _bandwidth(measured: Measured) -> list[str]:
    table = measured.tables["communication_collectives"]
    fast = table[table["bus_gb_per_s"].notna()]
    if fast.empty:
        return ["How fast it was cannot be told: no range names the bytes."] if len(table) else []
    best = fast.loc[fast["bus_gb_per_s"].idxmax()]
    size = f"{significant(best['bytes'] / 1e6)} MB"
    return [f"The fastest {best['operation']}, of {size}, has a bus bandwidth of {_gb(best)} ({where(best)})."]


def _alone(measured: Measured) -> list[str]:
    """The bus bandwidth of all-reduce alone at the largest size, by number of GPUs."""
    table = measured.tables["communication_all_reduce"]
    largest = table[table["bytes"] == table["bytes"].max()]
    if largest.empty:
        return []
    told = [
        f"{interval(own['bus_gb_per_s'], significant)} GB/s {GPUS.words(count)}"
        for count, own in largest.groupby(GPUS.key)
    ]
    size = significant(largest["bytes"].iloc[0] / 1e6)
    return [f"All-reduce alone, with no model beside it, of {size} MB has a bus bandwidth of {listed(told)}."]


def _gb(row: pd.Series) -> str:
    return f"{significant(row['bus_gb_per_s'])} GB/s"


def _scaling(measured: Measured) -> list[str]:
    table, said = measured.tables["communication_scaling"], []
    for kind, words in SHARES.items():
        own = table[table["kind"] == kind]
        if len(own):
            told = extremes(own, "efficiency", lambda row: with_spread(row["efficiency"], row["efficiency_std"]))
            said.append(f"{words}, efficiency is {told}.")
    return said


def _losses(measured: Measured) -> list[str]:
    """Whether several GPUs compute what one does."""
    table = measured.tables["communication_losses"]
    known = table[table["within_precision"].notna()]
    if known.empty:
        return []
    apart = known[~known["within_precision"].astype(bool)]
    off = apart[apart["agreeing"] < BEHIND_A_REDUCTION]
    if len(off):
        return [f"Losses are not those of one GPU: {listed([where(row) for _, row in off.iterrows()])}."]
    most = f"{known['largest_off'].max():.1e}"
    if apart.empty:
        return [f"Losses are those of one GPU with the same batch within the precision, off by {most} at most."]
    agreeing, losses = (interval(known[name], str) for name in ("agreeing", "losses"))
    return [
        f"Losses are those of one GPU with the same batch within the precision for {agreeing} of {losses} steps; in"
        f" {len(apart)} of {len(known)} runs they are apart behind that, by {most} at most: where training is unstable,"
        " rounding grows faster than with the number of steps, and is not told from an error there."
    ]


def _accuracy(measured: Measured) -> list[str]:
    """Whether the first step, its gradients reduced, is that of fp64."""
    table = measured.tables["communication_accuracy"]
    known = table[table["within_precision"].notna()]
    if known.empty:
        reasons = [escaped(reason) for reason in table["reason"].dropna().unique()]
        return [f"No first step was held against one in fp64: {listed(reasons)}."] if reasons else []
    off = known[~known["within_precision"].astype(bool)]
    most = f"logits by {known['logits_error'].max():.1e}"
    if known["gradient_norm_error"].notna().any():  # not of forward passes alone
        most += f" and the norm of the reduced gradients by {known['gradient_norm_error'].max():.1e}"
    most += " at most"
    verdict = f"rounding does not explain that of {places(off)}" if len(off) else "rounding explains all of it"
    return [f"Against an eager fp64 run of the whole batch the first step is off in its {most}; {verdict}."]


def times_table(measured: Measured) -> MarkdownTable | None:
    """(n) One line per run: its step, the same without communication, and the difference."""
    rows = measured.tables["communication_times"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = []
    for row in rows.to_dict("records"):
        step = with_spread(row["mean_ms"], row["std_ms"]) if row["status"] == COMPLETE else status_word(row["status"])
        without = with_spread(row["without_mean_ms"], row["without_std_ms"])
        lines.append(
            (*leading_cells(row, shown), step, without, significant(row["cost_ms"]), percent(row["cost_share"]))
        )
    headings = ("step, ms", "without communication, ms", "difference, ms", "of the step")
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def steps_table(measured: Measured) -> MarkdownTable | None:
    """(n) One line per run and rank: what fills a captured step, and communication in all."""
    rows = communication_of_steps(measured.tables["communication_steps"])
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            count(row["rank"]),
            *(significant(row[f"{name}_ms"]) for name in (*PARTS, "step", "communication", "transfer", "waiting")),
            percent(row["overlap"]),
        )
        for row in rows.to_dict("records")
    ]
    headings = (
        "rank", "compute, ms", "exposed communication, ms", "exposed memory, ms", "idle, ms", "step, ms",
        "communication, ms", "transfer, ms", "waiting, ms", "overlap",
    )  # fmt: skip
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def collectives_table(measured: Measured) -> MarkdownTable | None:
    """(n) One line per run, size and bucket, those with the most time first where there are many."""
    rows = measured.tables["communication_collectives"]
    if rows.empty:
        return None
    if len(rows) > MOST_COLLECTIVES:
        longest = (rows["duration_ms"] * rows["per_step"]).nlargest(MOST_COLLECTIVES).index
        rows = rows.loc[sorted(longest)]
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            escaped(row["operation"]),
            count(row["bucket"]),
            significant(row["bytes"] / 1e6) if known(row["bytes"]) else ABSENT,
            count(row["per_step"]),
            *(significant(row[name]) for name in ("duration_ms", "transfer_ms", "algorithm_gb_per_s", "bus_gb_per_s")),
        )
        for row in rows.to_dict("records")
    ]
    headings = (
        "operation", "bucket", "MB", "per step", "time, ms", "transfer, ms", "algorithm, GB/s", "bus, GB/s",
    )  # fmt: skip
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown) + 1)


def all_reduce_table(measured: Measured) -> MarkdownTable | None:
    """(n) One line per run and size of all-reduce alone."""
    rows = measured.tables["communication_all_reduce"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, (GPUS.key,))
    lines = [
        (
            *leading_cells(row, shown),
            significant(row["bytes"] / 1e6),
            with_spread(row["mean_ms"], row["std_ms"]),
            significant(row["algorithm_gb_per_s"]),
            significant(row["bus_gb_per_s"]),
        )
        for row in rows.to_dict("records")
    ]
    headings = ("MB", "time, ms", "algorithm, GB/s", "bus, GB/s")
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def losses_table(measured: Measured) -> MarkdownTable | None:
    """(n) One line per run: how far its losses are from those on one GPU, and the verdict."""
    rows = measured.tables["communication_losses"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            count(row["losses"]),
            *(f"{row[name]:.1e}" if known(row[name]) else ABSENT for name in ("first_off", "largest_off", "explained")),
            _verdict(row),
        )
        for row in rows.to_dict("records")
    ]
    headings = ("losses", "first off by", "at most off by", "explained of the first", "verdict")
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _verdict(row: dict) -> str:
    """Whether the losses are those of one GPU, in words."""
    if not known(row["within_precision"]):
        return NO_BASE
    if row["within_precision"]:
        return "the same"
    agreeing = row["agreeing"]
    return f"the same for {agreeing}, then apart" if agreeing >= BEHIND_A_REDUCTION else "not the same"


def accuracy_table(measured: Measured) -> MarkdownTable | None:
    """(n) One line per run: how far its first step is from fp64, and the verdict."""
    return errors_table(measured.tables["communication_accuracy"], LED_BY)


def scaling_table(measured: Measured) -> MarkdownTable | None:
    """(n) One line per run and kind of scaling."""
    rows = measured.tables["communication_scaling"]
    if rows.empty:
        return None
    shown = shown_dimensions(rows, LED_BY)
    lines = [
        (
            *leading_cells(row, shown),
            row["kind"],
            with_spread(row["mean_ms"], row["std_ms"]),
            with_spread(row["base_mean_ms"], row["base_std_ms"]),
            significant(row["speed_up"]),
            with_spread(row["efficiency"], row["efficiency_std"]),
        )
        for row in rows.to_dict("records")
    ]
    headings = ("scaling", "step, ms", "on one GPU, ms", "throughput ÷ one GPU's", "efficiency")
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown) + 1)
