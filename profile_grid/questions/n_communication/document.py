"""What the document of (n) says: sentences and tables."""

from collections.abc import Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import count, interval, known, percent, scientific, significant, with_spread
from profile_grid.questions.n_communication import divided_document
from profile_grid.questions.n_communication.divided_document import LEADING_KEYS, megabytes
from profile_grid.questions.n_communication.one_gpu import MIN_AGREEING_LOSSES, STRONG, WEAK
from profile_grid.questions.n_communication.table import PARTS
from profile_grid.study.dimensions import BATCH_SIZE, CONTEXT_LENGTH, GPUS, MODEL, PARALLEL, keys_without
from profile_grid.tables.cells import Part, errors_table, rows_table, text_or_status
from profile_grid.tables.evidence import FASTER, SLOWER, UNCLEAR, error_of_ratio, ratio_verdicts
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import NO_WINNER, Claim, config_in_words, listed, of_all

NO_ANSWER = Claim("Not answered: no run on several GPUs has figures.", "missing")
ON_PROCESSOR = Claim(
    "The ranks are processes of one processor and share its cores: these numbers say nothing of GPUs, and the threads"
    " of Gloo are not separated from operators."
)
BATCHES = {STRONG: "With strong scaling (one batch for all GPUs)", WEAK: "With weak scaling (a full batch per GPU)"}
MAX_COLLECTIVES = 40  # in the table
NO_BASE = "no run on one GPU has this batch"


def sentences(measured: Measured) -> list[Claim]:
    """(n) The first claim, on scaling if possible, then errors of the first step; then the cost of communication,
    exposed communication, losses, memory, late all-gathers, and bandwidth."""
    scaling = measured.tables["communication_scaling"]
    claims = [
        *_scaling(scaling, WEAK),
        *_scaling(scaling, STRONG),
        *_cost(measured.tables["communication_times"]),
        *_exposed_communication(measured.tables["communication_steps"]),
        *_loss_differences(measured.tables["communication_losses"]),
        *divided_document.memory_claims(measured.tables["communication_memory"]),
        *divided_document.gathers_claims(measured.tables["communication_gathers"]),
        *_bandwidth(measured),
    ]
    errors = _first_step_errors(measured.tables["communication_accuracy"])
    if not claims:
        return errors or [NO_ANSWER]
    return [claims[0], *errors, *([ON_PROCESSOR] if measured.machine.on_cpu else []), *claims[1:]]


def _scaling(table: pd.DataFrame, kind: str) -> list[Claim]:
    """The best and the worst way to reduce gradients, on the most GPUs, for the work for which they differ most."""
    rows = table[(table["kind"] == kind) & table["efficiency"].notna()]
    rows = rows[rows[GPUS.key] == rows[GPUS.key].max()]
    if rows.empty:
        return []
    keys = keys_without(PARALLEL.key)
    efficiencies = rows.groupby(keys, sort=False)["efficiency"]
    widest = rows.loc[(efficiencies.transform("max") - efficiencies.transform("min")).idxmax(), keys]
    ways = rows[(rows[keys] == widest).all(axis=1)]  # a row per way to reduce gradients
    best, worst = (ways.loc[index] for index in ways["efficiency"].agg(["idxmax", "idxmin"]))
    speed, rule = f"{percent(best['efficiency'])} of ideal speed {PARALLEL.words(best[PARALLEL.key])}", "difference"
    if len(ways) > 1 and _is_faster(best, worst):
        speed += f", and at {percent(worst['efficiency'])} {PARALLEL.words(worst[PARALLEL.key])}"
    elif len(ways) > 1:
        speed, rule = f"{interval(ways['efficiency'], percent)} of ideal speed", "unclear"
        speed += f", with {NO_WINNER} among {len(ways)} ways of reducing gradients"
    return [
        Claim(
            "{batch}, {gpus} GPUs train {place} at {speed}.", rule, batch=BATCHES[kind], gpus=best[GPUS.key],
            speed=speed, place=f"{best[MODEL.key]} {CONTEXT_LENGTH.words(best[CONTEXT_LENGTH.key])}",
        )
    ]  # fmt: skip


def _is_faster(best: pd.Series, worst: pd.Series) -> bool:
    """Whether the first of two rows of `communication_scaling` is clearly faster, by the spread between processes."""
    gain = pd.Series([best["efficiency"] / worst["efficiency"]])
    sides = ({"spread": [row["process_spread"]], "processes": [row["processes"]]} for row in (best, worst))
    error, freedom = error_of_ratio(*map(pd.DataFrame, sides))
    return ratio_verdicts(gain, error, freedom)["verdict"].iloc[0] == FASTER


def _cost(times: pd.DataFrame) -> list[Claim]:
    """In how many runs communication clearly prolongs a step, by which share; and how much processes vary."""
    compared = times.dropna(subset=["cost_ms"])
    if compared.empty:
        return []
    slower, cost, others = compared[compared["verdict"] == SLOWER], "", ""
    spread = interval(compared["baseline_spread"].dropna(), percent)
    if len(slower):
        named = [BATCH_SIZE.key] if slower[BATCH_SIZE.key].nunique() > 1 else []
        work = config_in_words(slower.loc[slower["cost_share"].idxmax()], always_named=named)
        cost = f": {interval(slower['cost_share'], percent)} of the step, most in {work}"
    if len(slower) < len(compared):
        others = ". In the others, the cost is within the variation between processes"
        if compared["baseline_spread"].notna().any():
            others += f" (standard deviation without communication: {spread})"
    which = " whose work was also timed without communication" if len(compared) < len(times) else ""
    return [
        Claim(
            "Without a profiler, communication costs time in {runs}{also}{cost}{others}.", "difference",
            runs=of_all(len(slower), len(compared), "run"), also=which, cost=cost, others=others, spread=spread,
        )
    ]  # fmt: skip


def _exposed_communication(steps: pd.DataFrame) -> list[Claim]:
    """The exposed communication of captured steps, which includes waiting for late ranks; and the ways to reduce
    gradients with the least and the most of it."""
    communicating = steps[steps["communication_ms"] > 0]
    if communicating.empty:
        return []
    exposed_share = communicating["exposed_communication_ms"] / communicating["step_ms"]
    medians = exposed_share.groupby(communicating[PARALLEL.key]).median().sort_values()
    least, most = (percent(medians.iloc[position]) for position in (0, -1))
    least_way, most_way = (PARALLEL.words(medians.index[position]) for position in (0, -1))
    amount, ways = interval(exposed_share, percent), f" (medians: from {least} {least_way} to {most} {most_way})"
    if len(medians) == len(communicating) > 1:  # each way has one value, which is its median
        amount, ways = f"{least} to {most}", f", least {least_way} and most {most_way}"
    elif len(medians) == 1:
        times = interval(communicating["exposed_communication_ms"], significant)
        of_ranks = ", depending on the rank" if len(communicating) > communicating["run"].nunique() == 1 else ""
        amount, ways = f"{times} ms", f" ({amount}{of_ranks})"
    text = "Under the profiler, exposed communication takes {amount} of a step{ways}."
    return [Claim(text, amount=amount, ways=ways)]


def _bandwidth(measured: Measured) -> list[Claim]:
    """The bus bandwidth of a step's fastest collective."""
    collectives = measured.tables["communication_collectives"]
    sized = collectives[collectives["bus_gb_per_s"].notna()]
    if sized.empty:
        text = "Bandwidths are not known: the ranges of these collectives have no sizes."
        return [Claim(text, "missing")] if len(collectives) else []
    fastest = sized.loc[sized["bus_gb_per_s"].idxmax()]
    text = "The fastest {operation}, of {size} MB, has a bus bandwidth of {rate} GB/s ({place})."
    size, rate = megabytes(fastest["bytes"]), significant(fastest["bus_gb_per_s"])
    return [Claim(text, operation=fastest["operation"], size=size, rate=rate, place=config_in_words(fastest))]


def _loss_differences(table: pd.DataFrame) -> list[Claim]:
    """Whether the losses on several GPUs are those on one; [] if none was compared."""
    compared = table[table["within_precision"].notna()]
    if compared.empty:
        return []
    unexplained = compared[~compared["within_precision"].astype(bool)]
    different = unexplained[unexplained["agreeing"] < MIN_AGREEING_LOSSES]
    if len(different):
        runs = listed([config_in_words(row) for _, row in different.iterrows()])
        return [Claim("Losses differ from those on one GPU: {runs}.", "counted", runs=runs)]
    largest = f"{significant(100 * compared['largest_off'].max(), 2)} %"
    if unexplained.empty:
        text = "Losses match those on one GPU within the precision; they differ by at most {largest}."
        return [Claim(text, "counted", largest=largest)]
    text = (
        "Losses match those on one GPU for the first {agreeing} of {losses} steps, then differ by at most {largest} in"
        " {runs} whose batch one GPU also ran."
    )
    agreeing, losses = (interval(unexplained[name], str) for name in ("agreeing", "losses"))
    runs = of_all(len(unexplained), len(compared), "run")
    return [Claim(text, "counted", agreeing=agreeing, losses=losses, largest=largest, runs=runs)]


def _first_step_errors(table: pd.DataFrame) -> list[Claim]:
    """The runs whose first step, with reduced gradients, differs from fp64 by more than rounding explains."""
    unexplained = table[table["within_precision"].notna() & ~table["within_precision"].fillna(True).astype(bool)]
    if unexplained.empty:
        return []
    runs = listed([config_in_words(row) for _, row in unexplained.iterrows()])
    return [Claim("The error of the first step is too large for rounding in {runs}.", "counted", runs=runs)]


def tables(measured: Measured) -> list[Part]:
    """(n) Steps with and without communication, ranks, collectives, bytes, late all-gathers, memory, losses, errors of
    the first step, and scaling."""

    def table_of(name: str, columns: Sequence, left_aligned: int = 0) -> MarkdownTable:
        return rows_table(measured.tables[f"communication_{name}"], LEADING_KEYS, columns, left_aligned)

    gathers = measured.tables["communication_gathers"]
    return [
        ("A step without a profiler (the time of the slowest rank), and the same work without reducing gradients",
         table_of("times", TIME_COLUMNS)),
        ("How the time of a step is spent on each rank, under the profiler (means of the captured steps)",
         _steps_table(measured)),
        (f"{_collectives_shown(measured)}, means over ranks and captured steps", _collectives_table(measured)),
        ("What one rank communicates in a step, by operation",
         table_of("volume", divided_document.VOLUME_COLUMNS, left_aligned=1)),
        ("Blocks whose parameters were gathered late, in captured steps of all ranks (all blocks: the table"
         " `communication_gathers`)",
         rows_table(gathers[gathers["late"] > 0], LEADING_KEYS, divided_document.GATHER_COLUMNS, left_aligned=1)),
        ("Memory of each rank by category", table_of("memory", divided_document.MEMORY_COLUMNS, left_aligned=3)),
        ("Losses compared with those of the run on one GPU with the same batch, as relative differences",
         table_of("losses", LOSS_COLUMNS)),
        ("Relative errors of the first step with reduced gradients, compared with an eager fp64 run of the"
         " entire batch",
         errors_table(measured.tables["communication_accuracy"], LEADING_KEYS)),
        ("Speed compared with one GPU", table_of("scaling", SCALING_COLUMNS, left_aligned=1)),
    ]  # fmt: skip


def _steps_table(measured: Measured) -> MarkdownTable:
    """(n) One line per run, rank and device: the parts of a captured step, and its communication in total."""
    times = [
        (f"{name.replace('_', ' ')}, ms", lambda row, name=name: significant(row[f"{name}_ms"]))
        for name in (*PARTS, "step", "communication", "transfer", "waiting")
    ]
    columns = (("rank", lambda row: count(row["rank"])), *times, ("overlap", lambda row: percent(row["overlap"])))
    return rows_table(measured.tables["communication_steps"], LEADING_KEYS, columns)


def _collectives_table(measured: Measured) -> MarkdownTable:
    """(n) One line per run, operation, size and bucket: the MAX_COLLECTIVES with the most time in a step."""
    rows = measured.tables["communication_collectives"]
    if len(rows) > MAX_COLLECTIVES:
        longest = (rows["duration_ms"] * rows["per_step"]).nlargest(MAX_COLLECTIVES).index
        rows = rows.loc[sorted(longest)]  # in the order of the table
    columns = (
        ("operation", lambda row: escaped(row["operation"])),
        ("bucket", lambda row: count(row["bucket"])),
        ("MB", lambda row: megabytes(row["bytes"])),
        ("calls per step", lambda row: count(row["per_step"])),
        ("time, ms", lambda row: significant(row["duration_ms"])),
        ("transfer, ms", lambda row: significant(row["transfer_ms"])),
        ("algorithm, GB/s", lambda row: significant(row["algorithm_gb_per_s"])),
        ("bus, GB/s", lambda row: significant(row["bus_gb_per_s"])),
    )
    return rows_table(rows, LEADING_KEYS, columns, left_aligned=1)


def _collectives_shown(measured: Measured) -> str:
    """The beginning of the title of the table of collectives: which of them it shows."""
    is_cut = len(measured.tables["communication_collectives"]) > MAX_COLLECTIVES
    return f"The {MAX_COLLECTIVES} collectives with the most time" if is_cut else "Collectives"


def _losses_cell(row: dict) -> str:
    """Whether the losses equal those of one GPU, in words, or that there is no such run."""
    if not known(row["within_precision"]):
        return NO_BASE
    if row["within_precision"]:
        return "the same"
    agreeing = row["agreeing"]
    return f"the same for {agreeing}, then apart" if agreeing >= MIN_AGREEING_LOSSES else "not the same"


TIME_COLUMNS = (
    ("step, ms", lambda row: text_or_status(with_spread(row["mean_ms"], row["std_ms"]), row["status"])),
    ("this run without communication, ms", lambda row: with_spread(row["without_mean_ms"], row["without_std_ms"])),
    ("without communication, median of all such runs, ms", lambda row: significant(row["baseline_ms"], 4)),
    ("difference from this median, ms", lambda row: significant(row["cost_ms"])),
    ("share of the step", lambda row: percent(row["cost_share"]) + (" ?" if row["verdict"] == UNCLEAR else "")),
)
LOSS_COLUMNS = (
    ("losses", lambda row: count(row["losses"])),
    ("difference of the first loss", lambda row: scientific(row["first_off"])),
    ("largest difference", lambda row: scientific(row["largest_off"])),
    ("allowed for the first loss", lambda row: scientific(row["explained"])),
    ("verdict", _losses_cell),
)
SCALING_COLUMNS = (
    ("scaling", lambda row: row["kind"]),
    ("step, ms", lambda row: with_spread(row["mean_ms"], row["std_ms"])),
    ("on one GPU, ms", lambda row: with_spread(row["base_mean_ms"], row["base_std_ms"])),
    ("throughput ÷ one GPU's", lambda row: significant(row["speed_up"])),
    ("efficiency", lambda row: percent(row["efficiency"])),
)
