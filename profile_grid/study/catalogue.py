"""Declares the questions of a study, in order, and their tables. Imports nothing heavy.

A question is a folder below profile_grid/questions: table.py makes its tables, document.py the sentences and tables of
its document, definitions.md.j2 (optional) the definitions below these tables, figure.py its figures. Other code knows a
question only by its entry here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from cs336_model.program.without_times import UNSUPPORTED
from profile_grid.study.dimensions import GPUS
from profile_grid.study.stage import STAGES_PACKAGE, Stage
from profile_grid.study.stages import (
    COUNTERS,
    ENERGY,
    MEMORY,
    NOT_ASKED,
    STAGES,
)
from profile_grid.study.workloads import ATTENTION_ALONE, MODEL_STEPS, Workload


@dataclass(frozen=True)
class Question:
    """One question. Without a document, it is a section of the page with only figures.

    A grid has a question if its runs have the `workload`, if two of them differ in the dimension `varies` (unless that
    is None), and if one of them can answer it: the `stage` that measures it was requested and is supported (None: the
    stages of every run measure it), and `needs` is true of its row in the table of runs (None: always). Numbers of
    `optional_stages` are shown if present.
    """

    name: str
    title: str
    tables: tuple[str, ...] = ()  # of its answer, in its table.py or another question's
    figures: tuple[str, ...] = ()  # names of its figures, which figure.py makes
    has_document: bool = True
    varies: str | None = None
    needs: Callable[[Mapping[str, object]], bool] | None = None
    workload: Workload = MODEL_STEPS
    stage: Stage | None = None
    optional_stages: tuple[Stage, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages whose numbers it shows."""
        of_every_run = (stage for stage in STAGES if stage.of_every_run and stage.workload is self.workload)
        return (*of_every_run, *([self.stage] if self.stage else []), *self.optional_stages)

    def can_be_answered_by(self, run: Mapping[str, object]) -> bool:
        """Whether a run, a row of the table of runs, can answer it: the stage was requested for it, its machine
        supports the stage, and `needs` is true. The measurement may have failed."""
        if self.stage and run[self.stage.status_column] in (NOT_ASKED, UNSUPPORTED):
            return False
        return self.needs is None or self.needs(run)

    def shows(self, run: Mapping[str, object]) -> bool:
        """Whether its document has a line for a run, with numbers or the reason for their absence."""
        return self.stage is None or run[self.stage.status_column] != NOT_ASKED

    @property
    def letter(self) -> str:
        """The letter of a question of the assignment, "a" for a_forward_time; empty for others."""
        letter, _, rest = self.name.partition("_")
        return letter if rest and len(letter) == 1 else ""

    @property
    def heading(self) -> str:
        """Its title in documents and on the page, with its letter if it has one."""
        return f"({self.letter}) {self.title}" if self.letter else self.title

    @property
    def package(self) -> str:
        """The name of its package."""
        return f"profile_grid.questions.{self.name}"


QUESTIONS = (
    Question(
        "a_forward_time", "How long does the forward pass take?", tables=("forward_time",),
        figures=("phase_times", "launch_bound"),
    ),
    Question("b_top_kernels", "Which kernel takes the most time?", tables=("top_kernels",), figures=("top_kernels",)),
    Question(
        "c_other_kernels", "What takes time besides matrix multiplies?",
        tables=("forward_classes", "forward_parts", "top_kernels"),
    ),
    Question(
        "d_training_vs_inference", "How does training differ from inference?",
        tables=("class_shares", "training_parts"), figures=("class_shares",),
    ),
    Question(
        "e_attention", "What does softmax cost in attention?",
        tables=("attention", "attention_backward", "forward_classes", "class_shares"),
        figures=("attention",),
    ),
    Question(
        "f_precision", "What does lower precision gain, and what does it cost in accuracy?", varies="precision",
        tables=("precision_times", "precision_parts", "precision_accuracy"), figures=("precision",),
    ),
    Question(
        "g_compile", "What does compilation gain, what does it fuse, and what does it cost?", varies="compile",
        tables=("compile_times", "compile_kernels", "compile_parts", "compile_cost"), figures=("compile",),
    ),
    Question(
        "h_attention", "Which attention is fastest at which length, and at which length does memory run out?",
        varies="attention",
        tables=("attention_times", "attention_operator"), figures=("attention_times",),
    ),
    Question(
        "i_memory", "Where does memory go, and what fits?", stage=MEMORY,
        tables=(
            "memory_peak", "memory_parts", "memory_block", "memory_operations", "dtypes", "memory_allocator",
            "memory_groups", "memory_at_failure",
        ),
        figures=("memory_categories", "memory_timeline"),
    ),
    Question(
        "j_checkpoint", "What does checkpointing save, and what does it cost?", varies="checkpoint",
        tables=("checkpoint_times", "checkpoint_memory"), figures=("checkpoint", "checkpoint_peak"),
        optional_stages=(MEMORY,),
    ),
    Question(
        "k_warmup", "How many warm-up steps are enough?", needs=lambda run: run["steps_warmed"] > 0,
        tables=("warmup_reports", "warmup_enough"), figures=("warmup",),
    ),
    Question(
        "l_counters", "Why is a kernel slow, and how near is it to the roof?", figures=("measured_roofline",),
        tables=("counter_kernels", "counter_sums", "counter_matmuls", "counter_roofs"),
        stage=COUNTERS,
    ),
    Question(
        "m_energy", "What does a token cost in energy, and what does an idle GPU cost?",
        stage=ENERGY, tables=("energy_use",), figures=("energy",),
    ),
    Question(
        "n_communication", "What does communication cost?", needs=lambda run: run[GPUS.key] > 1,
        tables=(
            "communication_times", "communication_steps", "communication_collectives", "communication_scaling",
            "communication_losses", "communication_accuracy", "communication_volume", "communication_memory",
            "communication_gathers", "communication_timelines",
        ),
        figures=("communication", "communication_timelines"), optional_stages=(MEMORY,),
    ),
    Question(
        "time_lost", "Where is time lost, and how much could be saved?",
        tables=("time_lost", "predictions"), optional_stages=(COUNTERS,),
    ),
    Question(
        "attention_sweep", "How fast is attention alone, by head size and context length?",
        workload=ATTENTION_ALONE, tables=("attention_sweep",), figures=("attention_sweep",),
    ),
    Question("scaling", "How does time grow with size?", figures=("scaling",), has_document=False),
    Question("roofline", "How near to the peaks is the forward pass?", figures=("roofline",), has_document=False),
)  # fmt: skip

WORKLOADS = tuple(dict.fromkeys(stage.workload for stage in STAGES))
RUN_TABLE_NAMES = tuple(name for stage in STAGES if stage.tables_of_a_run for name in stage.tables_of_a_run.names)


def summary_names(workloads: Collection[Workload]) -> tuple[str, ...]:
    """The names of the tables of the answers to questions of these workloads."""
    questions = (question for question in QUESTIONS if question.workload in workloads)
    return tuple(dict.fromkeys(name for question in questions for name in question.tables))


def merged_names(workloads: Collection[Workload]) -> tuple[str, ...]:
    """The names of the tables merged from runs with these workloads."""
    stages = [stage for stage in STAGES if stage.workload in workloads]
    stage_tables = (name for stage in stages for name in stage.table_names)
    run_tables = (name for stage in stages if stage.tables_of_a_run for name in stage.tables_of_a_run.names)
    return ("runs", *stage_tables, "cost", *run_tables)


SUMMARY_NAMES, MERGED_NAMES = summary_names(WORKLOADS), merged_names(WORKLOADS)
TABLE_NAMES = (*MERGED_NAMES, *SUMMARY_NAMES)
MODULES_OF_TABLES = (  # each declares its tables as TABLES
    "profile_grid.merging.run_overview", "profile_grid.merging.cost",
    *(f"{STAGES_PACKAGE}.{stage.name}.tables" for stage in STAGES),
    *(f"{question.package}.table" for question in QUESTIONS if question.tables),
)  # fmt: skip


def workloads_of(runs: Iterable[Mapping[str, object]]) -> set[Workload]:
    """The workloads of these runs, rows of the table of runs. Tables of earlier versions lack newer stages."""
    return {stage.workload for run in runs for stage in STAGES if run.get(stage.status_column, NOT_ASKED) != NOT_ASKED}


def table_names_of(runs: Iterable[Mapping[str, object]]) -> tuple[str, ...]:
    """The names of all tables of a grid with these runs, rows of the table of runs."""
    workloads = workloads_of(runs)
    return (*merged_names(workloads), *summary_names(workloads))


def questions_asked(runs: Iterable[Mapping[str, object]]) -> tuple[Question, ...]:
    """The questions of a grid with these runs, rows of the table of runs."""
    rows = list(runs)
    workloads = workloads_of(rows)
    return tuple(
        question
        for question in QUESTIONS
        if question.workload in workloads
        and (question.varies is None or len({row[question.varies] for row in rows}) > 1)
        and any(question.can_be_answered_by(row) for row in rows)
    )


def question_of_figure(figure: str) -> Question:
    """The question with this figure."""
    return next(question for question in QUESTIONS if figure in question.figures)
