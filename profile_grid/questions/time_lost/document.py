"""What the document on lost time says: sentences and tables."""

from collections.abc import Iterable, Iterator

import pandas as pd

from cs336_model.ranges import TRAIN_STEP
from kernel_tables.diagnosis.rules import RULES
from kernel_tables.markdown import MarkdownTable, code, with_code
from profile_grid.quantities import interval, percent, significant
from profile_grid.study.dimensions import BY_KEY
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.cells import Part, lines_table, rows_table, status_word
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.largest_gains import with_shown_gains
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import Claim, leaders, listed, median_note, of_all, runs_in_words

MAX_NAMED, MAX_IN_LEAD = 3, 1  # of rules in a sentence; of findings in the first sentence
NO_ANSWER = Claim("Not answered: no capture of these runs was diagnosed.", "missing")
FINDING_NAMES = {  # of a rule: what it finds, as the subject of a sentence
    "launch_bound": "late launches",
    "idle_host": "pauses of the host",
    "idle_sync": "synchronization between steps",
    "idle_copy": "copies between steps",
    "idle_allocation": "allocations between steps",
    "small_kernels": "many short kernels",
    "sync_in_step": "synchronization within a step",
    "copy_in_step": "copies within a step",
    "pageable_copy": "copies of pageable memory",
    "allocation_in_step": "allocations within a step",
    "unfused_elementwise": "unfused elementwise kernels",
    "casts": "casts",
    "no_tensor_cores": "fp32 matrix multiplies without tensor cores",
    "unfused_attention": "unfused attention",
    "unfused_optimizer": "an unfused optimizer",
    "low_occupancy": "low occupancy",
    "wave_tail": "partly empty last waves of thread blocks",
    "exposed_communication": "exposed communication",
    "unsteady_steps": "unsteady steps",
    "waiting_for_data": "waiting for data",
}
MAX_FINDINGS = 4  # of a run, in a table


def sentences(measured: Measured) -> list[Claim]:
    """The largest findings; gains of remedies and their bounds; unapplied rules."""
    findings = measured.tables["time_lost"]
    if findings.empty:
        return [NO_ANSWER]
    largest = _largest_findings(findings[~findings["abstained"].astype(bool)], run_count=findings["run"].nunique())
    return [*largest, *_remedies_within_bounds(measured.tables["predictions"]), *_unapplied_claim(findings)]


def _largest_findings(findings: pd.DataFrame, *, run_count: int) -> list[Claim]:
    """The largest finding of each run, and the share of a step that fixing it saves at most; then the number of runs
    without any. `findings`: of all runs, in each the largest first; `run_count`: diagnosed runs."""
    if findings.empty:
        return [Claim("The diagnosis finds nothing in {runs}.", "counted", runs=of_all(run_count, run_count, "run"))]
    largest = with_shown_gains(findings.drop_duplicates("run"))
    names, shares = [_finding_name(rule) for rule in largest["code"]], largest["percent"] / 100
    has_room = len(set(names)) <= MAX_IN_LEAD  # for the median, since the first sentence of an answer is short
    text = "The largest finding costs at most {shares} of a step{median}: {findings}."
    lead = Claim(
        text, "predicted", findings=leaders(names, max_names=MAX_IN_LEAD, run_count=run_count),
        shares=interval(shares, percent),
        median=median_note(shares, percent) if has_room else "",
    )  # fmt: skip
    runs_without = of_all(run_count - len(largest), run_count, "run")
    without = [Claim("Nothing is found in {runs}.", "counted", runs=runs_without)] if len(largest) < run_count else []
    return [lead, *without]


def _unapplied_claim(findings: pd.DataFrame) -> list[Claim]:
    """The rules that could not be applied: it is unknown whether they would find something. The table has reasons."""
    texts = [rules for rules, _ in _unapplied_rules(findings)]
    return [Claim("Not checked, for the reasons below: {texts}.", "missing", texts="; ".join(texts))] if texts else []


def _unapplied_rules(findings: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """For each reason: (the rules that could not be applied, in words, and in how many runs; the reason). Where a run
    has no optimizer, it is no news that the rule for optimizers cannot be applied."""
    has_no_optimizer = (findings["code"] == "unfused_optimizer") & (findings["mode"] != TRAIN_STEP)
    unapplied, run_count = findings[findings["abstained"].astype(bool) & ~has_no_optimizer], findings["run"].nunique()
    for reason, rows in unapplied.groupby("message", sort=False, observed=True):
        unapplied_runs = rows["run"].nunique()
        where = f" in {of_all(unapplied_runs, run_count, 'run')}" if unapplied_runs < run_count else ""
        names = [_finding_name(rule) for rule in dict.fromkeys(rows["code"])]
        rules = listed(names) if len(names) <= MAX_NAMED else f"{len(names)} rules"
        yield f"{rules}{where}", str(reason)


def _remedies_within_bounds(predictions: pd.DataFrame) -> list[Claim]:
    """How many measured gains of remedies were within their bounds, and which exceeded them clearly: by more than
    processes differ, so that the bound does not hold."""
    if predictions.empty:
        return []
    clearly_above = predictions[~predictions["holds"].astype(bool)]
    also = f"; clearly more was saved in {runs_in_words(clearly_above)}" if len(clearly_above) else ""
    within, every = count_within_bound(predictions), len(predictions)
    if within == every == 1:
        saved, bound = (predictions[f"{name}_percent"].iloc[0] / 100 for name in ("measured", "predicted"))
        text = "The measured remedy saves {saved} of the time; its bound is {bound}."
        if saved < 0:
            text = "The measured remedy takes {saved} more time; the bound of its saving is {bound}."
        numbers = {"saved": percent(abs(saved)), "bound": percent(bound)}
        return [Claim(text, "counted", **numbers, held=within, all=every)]
    slower = int((predictions["measured_percent"] < 0).sum())
    longer = f"; {slower} of them took more time" if slower else ""
    text = f"{template_of_count(within, every)} measured remedies saved no more than their bounds{{also}}{{longer}}."
    return [Claim(text, "counted", held=within, all=every, also=also, longer=longer)]


def template_of_count(count_within: int, every: int) -> str:
    """The template of a subject with the numbers `held` (count_within) and `all` (every): "All {all}", "The only", or
    "{held} of {all}"."""
    if count_within != every:
        return "{held} of {all}"
    return "All {all}" if every > 1 else "The only"


def count_within_bound(predictions: pd.DataFrame) -> int:
    """The number of remedies whose measured gain is at most the predicted bound. The column `holds` also allows for the
    variation between processes."""
    return int((predictions["measured_percent"] <= predictions["predicted_percent"]).sum())


def tables(measured: Measured) -> list[Part]:
    """The findings of each diagnosis, why rules could not be applied, and remedies."""
    findings = measured.tables["time_lost"]
    if findings.empty:
        return []
    unapplied = [f"- {rules}: {with_code(reason)}" for rules, reason in _unapplied_rules(findings)]
    return [
        ("Findings of the diagnosis of each capture, with the largest possible saving in a step without a profiler",
         _findings_table(measured)),
        *(["\n".join(["Not checked:\n", *unapplied])] if unapplied else []),
        ("Bounds of what remedies save, and what they saved without a profiler",
         rows_table(measured.tables["predictions"], LEADING_KEYS, REMEDY_COLUMNS, left_aligned=2)),
    ]  # fmt: skip


REMEDY_COLUMNS = (
    ("remedy", lambda row: f"{BY_KEY[row['remedy']].heading} {BY_KEY[row['remedy']].name_of(row[row['remedy']])}"),
    ("for", lambda row: _finding_names(row["codes"])),
    ("at most, ms (of a step)", lambda row: _gain(row, "predicted")),
    ("gained, ms (of a step)", lambda row: _gain(row, "measured")),
    ("bound holds", lambda row: "yes" if row["holds"] else "**no**"),
)


def _findings_table(measured: Measured) -> MarkdownTable:
    """One line per run: the findings of its diagnosis, largest gain first, each with the bound of its gain."""
    findings = measured.tables["time_lost"]
    found = with_shown_gains(findings[~findings["abstained"].astype(bool)])

    def cells(run: dict) -> list[str]:
        run_findings = found[found["run"] == run["run"]]
        texts = [
            f"{_finding_name(row.code)}: {significant(row.ms)} ms ({percent(row.percent / 100)})"
            for row in run_findings.head(MAX_FINDINGS).itertuples()
        ]
        texts += [f"and {len(run_findings) - MAX_FINDINGS} more"] if len(run_findings) > MAX_FINDINGS else []
        if not texts:
            is_diagnosed = run["run"] in set(findings["run"])
            return ["nothing" if is_diagnosed else status_word(run[CAPTURE.status_column])]
        return ["; ".join(texts)]

    return lines_table(
        measured.runs, LEADING_KEYS, ("findings, with the largest possible saving",), cells, left_aligned=1
    )


def _gain(row: dict, which: str) -> str:
    return f"{significant(row[which + '_ms'])} ({percent(row[which + '_percent'] / 100)})"


def finding_definitions(results: Iterable[Measured]) -> list[str]:
    """A definition of each kind of finding that occurs: "late launches (`launch_bound`): ..."."""
    findings = pd.concat([measured.tables["time_lost"] for measured in results])
    codes = findings.loc[~findings["abstained"].astype(bool), "code"].unique()
    looks_for = {rule.code: rule.looks_for for rule in RULES}
    return [f"{_finding_name(rule)} ({code(rule)}): {looks_for[rule]}." for rule in codes if rule in looks_for]


def _finding_names(codes: str) -> str:
    return ", ".join(_finding_name(rule) for rule in codes.split(", ") if rule) or "no finding"


def _finding_name(rule: str) -> str:
    """What the rule with this code finds, in words: "late launches"; the code itself if it is unknown."""
    return FINDING_NAMES.get(rule) or code(rule, in_table=True)
