"""What is declared of a stage: its settings, what it runs and leaves, its tables. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from profile_grid.study.workloads import MODEL_STEPS, Workload

GPU = "gpu"
WARMUP = {"type": "integer", "minimum": 0, "maximum": 100_000}
COUNT = {"type": "integer", "minimum": 1, "maximum": 10_000_000}
PROCESSES = (
    "profile_grid/measuring/measured_program.py",
    "profile_grid/measuring/processes.py",
    "profile_grid/measuring/ranks.py",
    "profile_grid/measuring/supervisor.py",
)


@dataclass(frozen=True)
class Setting:
    """One key of a stage's section in config.yaml. Settings of the program are told to the measured program, the others
    to the stage itself."""

    schema: Mapping
    default: object = None
    of_program: bool = False
    of_study: bool = False  # told to no process, so that its change makes no result stale


@dataclass(frozen=True)
class TablesOfARun:
    """Tables that one run's files give before anything is merged, and the file that says whether they are whole.

    `made_by` is the "module:function" of (result, folder, rules by `own_rules`) -> (status, {name: table}),
    `texts_by` that of (result, folder) -> {file: text}, for the files of `texts`; `sources` are file patterns besides
    what these import.
    `empty_by` is that of () -> {name: table without rows}, for a grid in which no run has the stage; `reads` are the
    stages of every run whose results and files are read too.
    """

    names: tuple[str, ...]
    status_file: str
    made_by: str
    empty_by: str
    reads: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    texts_by: str | None = None
    sources: tuple[str, ...] = ()
    own_rules: tuple[str, ...] = ("kernel_classes",)

    @property
    def files(self) -> tuple[str, ...]:
        """The files of a run that hold them, besides the status."""
        return (*(f"{name}.{suffix}" for name in self.names for suffix in ("csv", "parquet")), *self.texts)


@dataclass(frozen=True, eq=False)
class Stage:
    """One thing that is measured of a run.

    `runs` is the "module:function" of (job) -> result; `files` is what a job leaves besides NAME.json, `may_leave` what
    it leaves only sometimes. `sources` are the files whose change makes its results stale, besides the measured program
    and the module of `runs`. `needs` is what a job has to itself: a GPU, or nothing (None). `tables` is the
    "module:function" of (runs) -> {name: table} for `table_names`, which joins its results to the tables of the study.
    `lasts_s` is what a job takes besides its start and its steps, in seconds, by what the stage is told.
    `attempts` is how often a job tries at most; `disk_bytes` is about what it leaves, and for every layer and step
    `disk_bytes_per_layer_and_step` more. A stage that is not `of_every_run` is measured where a product of the grid
    names it under `stages`: in runs on one GPU, or where it is `of_several_gpus` in those on several. One that is
    `only_with_gpu` ends at once on a processor, as unsupported. Runs with its `workload` have it;
    `estimated_by` names the module with `needed_bytes(program)` and `seconds(program, peaks, memory_bytes)`, where the
    work of the stage is not the steps of a model.
    """

    name: str
    meaning: str
    runs: str
    tables: str | None = None
    table_names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    may_leave: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    needs: str | None = GPU
    lasts_s: Callable[[Mapping], float] = lambda told: 0.0
    attempts: int = 1
    disk_bytes: int = 0
    disk_bytes_per_layer_and_step: int = 0
    settings: Mapping[str, Setting] = field(default_factory=dict)
    tables_of_a_run: TablesOfARun | None = None
    of_every_run: bool = True
    of_several_gpus: bool = False
    only_with_gpu: bool = False
    workload: Workload = MODEL_STEPS
    estimated_by: str | None = None

    @property
    def result(self) -> str:
        """The file of a run that says how this stage ended."""
        return f"{self.name}.json"

    @property
    def status_column(self) -> str:
        """The column of the table of runs that says how this stage ended."""
        return f"{self.name}_status"
