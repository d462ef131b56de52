"""The declaration of a stage: its settings, files and tables. Imports nothing heavy.

A stage is a folder profile_grid/stages/NAME with

    stage.py      its declaration, which profile_grid.study.stages lists
    measure.py    measure(job) -> result
    tables.py     TABLES: the declaration of each table
                  study_tables(runs) -> {name: table}, if the stage has `table_names`
                  run_tables(result, folder, *rules) -> RunTables, if it has `tables_of_a_run`; `rules` are the custom
                  rules that its `rule_keys` name
                  run_texts(result, folder) -> {file: text}, if its `tables_of_a_run` have `texts`

and their tests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType

from profile_grid.study.dimensions import COUNT_SCHEMA
from profile_grid.study.workloads import MODEL_STEPS, Workload

STAGES_PACKAGE = "profile_grid.stages"
RULE_KEYS = ("kernel_classes", "diagnosis_rules")  # the keys of config.yaml that hold custom rules
SHOWN_PATTERN = "shown"  # as the setting `runs` of a stage, it stands for the run whose step the page shows
WARMUP_SCHEMA = {"type": "integer", "minimum": 0, "maximum": 100_000}
PROCESS_SOURCES = (  # files that run the processes of every stage
    "profile_grid/freshness/environment.py",
    "profile_grid/host/processes/job.py",
    "profile_grid/host/processes/measured_program.py",
    "profile_grid/host/processes/programs.py",
    "profile_grid/host/processes/ranks.py",
    "profile_grid/host/processes/supervisor.py",
)


@dataclass(frozen=True)
class Setting:
    """One key of a stage's section in config.yaml."""

    schema: Mapping  # JSON schema
    default: object = None
    of_program: bool = False  # passed to the measured program instead of the stage
    of_study: bool = False  # passed to no process, so that a change makes no result stale


def step_settings(*, warmup: int, measured: int) -> dict[str, Setting]:
    """The settings for the numbers of steps, with these defaults; every stage of a model has them."""
    return {
        "warmup_steps": Setting(WARMUP_SCHEMA, default=warmup, of_program=True),
        "measured_steps": Setting(COUNT_SCHEMA, default=measured, of_program=True),
    }


@dataclass(frozen=True)
class TablesOfARun:
    """Tables that are made of the files of one run, before runs are merged."""

    names: tuple[str, ...]
    status_file: str  # says whether the tables are complete
    reads: tuple[str, ...] = ()  # names of other stages that every run has: their results and files are read, too
    texts: tuple[str, ...] = ()  # text files that are also made
    sources: tuple[str, ...] = ()  # patterns of files that the tables depend on, besides the imports of tables.py
    rule_keys: tuple[str, ...] = ("kernel_classes",)  # keys of config.yaml whose rules are passed to run_tables

    @property
    def files(self) -> tuple[str, ...]:
        """The files of these tables and the texts, without the status file."""
        return (*(f"{name}.{suffix}" for name in self.names for suffix in ("csv", "parquet")), *self.texts)


@dataclass(frozen=True, eq=False)
class Stage:
    """A measurement of a run, in processes that do nothing else."""

    name: str  # also of its folder, its rule and its section in config.yaml
    meaning: str  # the measured process, for progress and documents
    table_names: tuple[str, ...] = ()  # tables of the study that are made from its results
    files: tuple[str, ...] = ()  # files of a job, besides NAME.json
    optional_files: tuple[str, ...] = ()  # further files, which not every job makes
    sources: tuple[str, ...] = ()  # files whose change makes results stale, besides the measured program and measure.py
    extra_seconds: Callable[[Mapping], float] = lambda settings: 0.0  # expected, besides start and steps of a job
    attempts: int = 1  # how often a job is tried at most
    disk_bytes: int = 0  # about the size of the files of a job
    disk_bytes_per_layer_and_step: int = 0  # added to it for every layer of every step
    settings: Mapping[str, Setting] = field(default_factory=dict)
    tables_of_a_run: TablesOfARun | None = None
    of_every_run: bool = True  # if False, only of runs whose product lists it, or which its setting `runs` names
    workload: Workload = MODEL_STEPS  # of the runs that can have it

    def __post_init__(self) -> None:
        if self.workload is MODEL_STEPS and not self.settings.keys() >= step_settings(warmup=0, measured=1).keys():
            raise ValueError(f"stage {self.name}: add step_settings(warmup=0, measured=1) to its settings")

    @property
    def result_file(self) -> str:
        """The name of the file with the result of this stage of a run."""
        return f"{self.name}.json"

    @property
    def status_column(self) -> str:
        """The column of the table of runs with the status of this stage."""
        return f"{self.name}_status"

    @property
    def status_file(self) -> str | None:
        """The name of the file with the status of its tables of a run; None if it makes none."""
        return self.tables_of_a_run.status_file if self.tables_of_a_run else None

    def module_path(self, module: str) -> str:
        """The path, in the checkout, of a module in the folder of this stage."""
        return f"{STAGES_PACKAGE}.{self.name}.{module}".replace(".", "/") + ".py"

    def load(self, module: str) -> ModuleType:
        """A module in the folder of this stage. It is imported only here, since planning must not import them."""
        return import_module(f"{STAGES_PACKAGE}.{self.name}.{module}")
