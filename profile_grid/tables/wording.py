"""Sentences as claims, each with its numbers and the rule that justifies it; and wording that the sentences of all
questions share: names of runs, lists, counts."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from itertools import groupby

import pandas as pd

from cs336_model.program.without_times import CUT, WHERE_IN_PYTORCH
from kernel_tables.markdown import escaped
from profile_grid.quantities import interval, known, percent
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import ATTENTION, EVERY_DIMENSION, GPUS, MODE, MODES, PRECISION
from profile_grid.study.stages import CAPTURE, NOT_ASKED
from profile_grid.tables.classes import family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD

RULES = {
    "measured": "numbers of the tables: of one run, or the least and the most of several",
    "counted": "how many runs of how many",
    "difference": "a difference is likely, by the spread between processes (profile_grid/tables/evidence.py)",
    "unclear": "by the spread between processes, nothing may differ; and how many processes would do",
    "predicted": "follows from shapes, rules or the data sheet, and was not measured",
    "missing": "what the tables lack, and why",
}
VERDICTS = ("difference", "unclear")  # the rules that rest on differences between processes
FIELD = re.compile(r"\{[^{}]*\}")  # of a template
WITH = "with "  # with which the words of some dimensions begin
NO_KERNEL = "No available kernel. Aborting execution. "  # PyTorch writes this before a reason
SWITCHED_OFF = re.compile(r" [\w ]+ not used because: [\w ]+ disabled\.")  # backends other than the refused one
MAX_BULLETS = 5  # sentences below a lead
PASSES = {mode: name if "+" in name else f"the {name}" for mode, name in MODES.items()}  # modes in sentences
TRAINING = {mode: name for mode, name in PASSES.items() if mode != FORWARD}
MAX_NAMES = 2  # of runs in a sentence
NO_WINNER = "no clear winner"  # of several times


class Claim(str):
    """A sentence in Markdown. Its `template` has no digit: all numbers, and names with digits, are in `numbers`."""

    rule: str
    numbers: dict[str, str]

    def __new__(cls, template: str, rule: str = "measured", **numbers: object) -> "Claim":
        if rule not in RULES or re.search(r"\d", FIELD.sub("", template)):
            raise ValueError(
                f"no claim: {template!r} by the rule {rule!r}: its text may have no digit (pass numbers as arguments),"
                f" and its rule is one of {', '.join(RULES)}"
            )
        claim = super().__new__(cls, template.format(**numbers))
        claim.rule, claim.numbers = rule, {name: str(value) for name, value in numbers.items()}
        return claim


NO_FORWARD_PASS = Claim("Not answered: no capture of a forward pass is complete.", "missing")


def config_in_words(row: Mapping | pd.Series, always_named: Collection[str] = ()) -> str:
    """The dimensions of a row in Markdown, without the mode: "small at context 512", "small at context 512 in bf16".
    Defaults are left out, except those of the dimensions with the keys `always_named`."""
    values = ((dimension, row.get(dimension.key)) for dimension in EVERY_DIMENSION if dimension is not MODE)
    return _joined([
        escaped(dimension.words(value))
        for dimension, value in values
        if known(value) and (value != dimension.default or dimension.key in always_named)
    ])  # fmt: skip


def named_keys(runs: pd.DataFrame) -> list[str]:
    """The keys of precision, attention and GPUs, if they vary, so that their defaults have to be named, too."""
    return [dimension.key for dimension in (PRECISION, ATTENTION, GPUS) if runs[dimension.key].nunique() > 1]


def _joined(words: list[str]) -> str:
    """The words of dimensions; those that follow each other share one "with": "with batch 2 and flash attention"."""
    texts = []
    for is_with, group in groupby(words, lambda word: word.startswith(WITH)):
        if is_with:
            texts.append(WITH + listed([word.removeprefix(WITH) for word in group]))
        else:
            texts += group
    return " ".join(texts)


def run_in_words(row: Mapping | pd.Series, always_named: Collection[str] = ()) -> str:
    """A complete run in Markdown: "small at context 512, training step". `always_named` is as for `config_in_words`."""
    mode, configuration = row[MODE.key], config_in_words(row, always_named)
    return f"{configuration}, {escaped(MODE.name_of(mode))}" if known(mode) else configuration


def configs_in_words(rows: pd.DataFrame, max_names: int = 4) -> str:
    """The distinct configurations of these rows in words, without modes: the first by name, the rest as a number."""
    names = list(dict.fromkeys(config_in_words(row) for row in rows.to_dict("records")))
    if len(names) <= max_names:
        return listed(names)
    return f"{', '.join(names[:max_names])} and {len(names) - max_names} more"


def some_runs(rows: pd.DataFrame, all_rows: pd.DataFrame) -> str:
    """The runs of `rows`, which are some of `all_rows`, in words: a single one by its name, several as "3 of 20 runs",
    since the document's tables name them."""
    if len(rows) != 1 or len(all_rows) == 1:
        return of_all(len(rows), len(all_rows), "run")
    in_words = run_in_words if all_rows[MODE.key].nunique() > 1 else config_in_words
    return in_words(rows.iloc[0])


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def listed(words: list[str]) -> str:
    """Words as an English list: "a, b and c"."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def runs_in_words(rows: pd.DataFrame) -> str:
    """The runs of these rows in words, the first by name: "small at context 512, training step; 3 more"."""
    names = list(dict.fromkeys(run_in_words(row) for row in rows.to_dict("records")))
    more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return "; ".join([*names[:MAX_NAMES], *more])


def of_all(number: int, total: int, noun: str = "configuration", plural: str | None = None) -> str:
    """A number of a total in words: "all 20 configurations", "both configurations", "3 of 20 configurations"."""
    if total == 1:
        return f"the only {noun}" if number else f"no {noun}"
    plural = plural or f"{noun}s"
    if number == total:
        return f"both {plural}" if total == 2 else f"all {total} {plural}"
    return f"{number or 'none'} of {total} {plural}"


def leaders(names: list[str], max_names: int = 3, noun: str = "run", run_count: int | None = None) -> str:
    """The commonest names with their counts: "**sgemm 128×64 tn** in 12 of 20 runs, **reduce sum** in 8". `names` has a
    name per run; `run_count` is the number of all runs, if some have no name."""
    ranking, total = Counter(names).most_common(), run_count or len(names)
    if len(ranking) < 2:  # one name, or none
        return "".join(name + (f" in {of_all(number, total, noun)}" if total > 1 else "") for name, number in ranking)
    if len(ranking) == max_names + 1:  # "others" would stand for one name
        max_names += 1
    (first, first_number), *others = ranking[:max_names]
    texts = [f"{first} in {first_number} of {total} {noun}s", *(f"{name} in {number}" for name, number in others)]
    rest = sum(number for _, number in ranking[max_names:])
    return listed([*texts, f"others in {rest}"] if rest else texts)


def winners(names: list[str], noun: str = "run") -> str:
    """The winners with their counts: "flash in 2 of 3 runs"; of a single run, only the name; "none" if nothing wins.
    `names` has the winner of each run, or NO_WINNER."""
    counts = Counter(name for name in names if name != NO_WINNER).most_common()
    if len(names) == 1 and counts:
        return counts[0][0]
    return listed([f"{name} in {of_all(number, len(names), noun)}" for name, number in counts]) or "none"


def median_note(values: pd.Series, text: Callable[[float], str]) -> str:
    """The median in brackets, to follow the interval of more than two values: " (median 3.2)"; else nothing."""
    return f" (median {text(values.median())})" if len(values) > 2 else ""


def mode_note(measured: Measured) -> list[str]:
    """If no run measured the forward pass alone, a sentence that the forward phase of another mode is used."""
    if measured.inference_mode == FORWARD:
        return []
    text = "No run measured the forward pass alone; the numbers are those of the forward phase of the {mode}."
    return [Claim(text, "missing", mode=MODES[measured.inference_mode])]


def pytorch_reason(reason: str) -> str:
    """PyTorch's reason without its first words, positions in its source, and backends that were switched off."""
    text = SWITCHED_OFF.sub("", WHERE_IN_PYTORCH.sub("", reason)).replace(NO_KERNEL, "")
    return f"{text.removesuffix(CUT)} (the rest was not recorded)" if text.endswith(CUT) else text


def no_kernels_sentence(measured: Measured) -> str:
    """A sentence that no kernels were captured on this machine, with the reasons that the runs give."""
    runs = measured.runs
    not_captured = runs[CAPTURE.status_column] != COMPLETE  # the reasons of the others are about other stages
    reasons = [*runs.loc[not_captured, "reason"].dropna(), *runs["note"].dropna()]
    is_requested = (runs[CAPTURE.status_column] != NOT_ASKED).any()
    unknown = "no reason was recorded" if is_requested else "captures were not requested"
    why = "; ".join(dict.fromkeys(str(reason) for reason in reasons)) or unknown
    by = f" by {measured.machine.profiler}" if measured.machine.backend else ""
    text = "Not answered: no {kernels} were captured{by} ({why})."
    return Claim(text, "missing", kernels=measured.words.kernels, by=by, why=escaped(why))


def first_ranked(table: pd.DataFrame, scope: str) -> pd.DataFrame:
    """The rows of rank 1 in this scope."""
    return table[(table["scope"] == scope) & (table["rank"] == 1)]


def fused_sentence(measured: Measured, classes: pd.DataFrame) -> list[str]:
    """If the forward pass has fused attention kernels, a sentence that these contain matrix multiplies, which count as
    attention. `classes` are the shares of the forward pass by class."""
    shares = family_shares(classes).query("family == 'attention' and share > 0")
    if shares.empty:
        return []
    text = (
        "Fused attention {kernels} ({share} of the forward pass) contain matrix multiplies and softmax; they count as"
        " attention."
    )
    return [Claim(text, kernels=measured.words.kernels, share=interval(shares["share"], percent))]
