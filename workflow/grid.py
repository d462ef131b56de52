"""From the values of config.yaml to the runs of a grid, to what the process of each is told, and to the questions that
the grid asks. Imports no torch.

config.yaml -> Config (checked; an error names the key) -> Run (one per combination of values) -> Spec (per stage)
"""

import fnmatch
import os
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from cs336_model.results import STAGES
from cs336_model.spec import OWN_MODEL, Compile, Dimensions, Mode, Optimizer, Parallel, Precision, Spec, find_conflict
from kernel_tables.verdict import FAIL_ON

KEYS = Dimensions.__struct_fields__
EXTRA_STAGES = tuple(stage for stage in STAGES if stage not in ("timing", "capture", "attention"))  # on request

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]  # it becomes a part of the name of a file
Importable = Annotated[str, Meta(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*\Z")]  # module:name
AttentionAlone = Annotated[str, Meta(pattern=r"^(eager|math|flash|efficient|cudnn|[A-Za-z_][\w.]*:[A-Za-z_]\w*)\Z")]
Value = TypeVar("Value")
Values = Annotated[tuple[Value, ...], Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=10_000_000)]
Warmup = Annotated[int, Meta(ge=0, le=100_000)]
Checkpoint = Annotated[int, Meta(ge=0, le=9999)] | Annotated[str, Meta(pattern=r"^(0|[1-9]\d{0,3}(-[1-9]\d{0,3})*)\Z")]


class ConfigError(Exception):
    """What is wrong in config.yaml: one line that names the key."""


class Struct(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of config.yaml; a key that it does not have is an error."""


class Sizes(Struct):
    """The sizes of a model of this project, as the handout names them."""

    d_model: Count
    d_ff: Count
    num_layers: Count
    num_heads: Count
    rope_theta: Annotated[float, Meta(ge=1)] = 10000.0
    vocab_size: Count | None = None  # None: that of all models


class Product(Struct):
    """Every combination of these values is a run of a model."""

    models: Values[str]
    context_lengths: Values[Count]
    modes: Values[Mode]
    precisions: Values[Precision] | None = None  # None: `precision` of all products
    batch_sizes: Values[Count] | None = None  # None: `batch_size` of all products
    compiles: Values[Compile | bool] = ("off",)
    attentions: Values[Literal["eager", "math", "flash", "efficient", "cudnn"]] = ("eager",)
    checkpoints: Values[Checkpoint] = ("0",)
    gpus: Values[Annotated[int, Meta(ge=1, le=1024)]] = (1,)
    parallels: Values[Parallel] = ("none",)
    optimizers: Values[Optimizer] = ("adamw",)
    stages: list[Literal[EXTRA_STAGES]] = []  # in addition to timing and capture


class AttentionProduct(Struct):
    """Every combination of these values is a run of attention alone, which measures all its context lengths."""

    program: Literal["attention"]
    head_dims: Values[Count]
    context_lengths: Values[Count]
    precisions: Values[Precision] | None = None
    batch_sizes: Values[Count] = (8,)  # as in the course
    compiles: Values[Literal["off", "on"] | bool] = ("off",)
    attentions: Values[AttentionAlone] = ("eager",)


class Program(Struct):
    """The measured model, and what changes in it."""

    constructor: Importable = OWN_MODEL
    config: Importable | None = None  # makes the object that the constructor receives of the arguments
    arguments: dict[str, Any] = {}  # "$name" is a value of the run; none: those of this project's model
    annotate: dict[str, Importable] | Literal["modules"] = {}  # name of a range -> function
    replace: dict[Importable, Importable] = {}
    sources: list[str] = []  # files in the working folder whose changes make measurements stale


class Steps(Struct):
    """How many steps are run before those that are measured, and of these."""

    warmup_steps: Warmup
    measured_steps: Count


class Timing(Steps):
    processes: Count  # that time each run


class Capture(Steps):
    """By which profiler a step is captured, and with which further options."""

    backend: Literal["auto", "nsys", "torch"]
    nsys_options: list[
        Annotated[str, Meta(pattern=r"^--(?!output|export|force-overwrite|command-file)[a-z][a-z-]*(=[\w,.:-]+)?\Z")]
    ] = []
    keep_report: bool = False


class Energy(Steps):
    """A process that steps for windows of seconds."""

    windows: Annotated[int, Meta(ge=3, le=1000)]
    window_s: Annotated[float, Meta(ge=5, le=600)]


class Counters(Steps):
    """Which runs ncu counts, in a model of so many layers, and which metrics besides those of the tables."""

    runs: str  # a pattern of names of runs, or "shown", the run whose step the page shows
    layers: Count
    metrics: list[str]


class Operator(Struct):
    """How often attention alone is run before it is measured, and measured."""

    warmup_passes: Warmup
    measured_passes: Count


class Config(Struct):
    """config.yaml, which has the values at which keys are if the user says nothing, and what they mean."""

    grid: str
    grids: dict[Name, list[dict]]
    models: dict[Name, dict[str, Any]]
    program: Program
    batch_size: Count
    vocab_size: Count
    precision: Precision
    seed: Annotated[int, Meta(ge=0, lt=2**32)]
    device: Literal["auto", "cuda", "cpu"]
    timing: Timing
    capture: Capture
    memory: Steps
    energy: Energy
    counters: Counters
    operator: Operator
    time_limit_s: Annotated[float, Meta(ge=1)]
    environment: list[Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*\Z")]]
    kernel_classes: list[dict[str, str]]
    diagnosis_rules: list[dict]
    formats: tuple[Literal["markdown", "latex", "typst"], ...]
    before: str = ""  # of `snakemake compare`, as are the next two
    after: str = ""
    fail_on: Annotated[str, Meta(pattern=f"^{FAIL_ON}$")] = "nothing"


class Run(Dimensions, frozen=True, kw_only=True):
    head_dim: int | None = None  # of attention alone, as are the context lengths that it measures
    context_lengths: tuple[int, ...] = ()
    stages: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder below results/runs, and the name in every table. It leaves out what is at its default."""
        labels = {
            "head_dim": "d{}", "context_length": "ctx{}", "mode": "{}", "precision": "{}", "batch_size": "bs{}",
            "compile": "compile-{}", "attention": "{}-attention", "checkpoint": "checkpoint{}", "gpus": "gpus{}",
            "parallel": "{}", "optimizer": "{}",
        }  # fmt: skip
        default = Run()
        changed = [key for key in labels if getattr(self, key) != getattr(default, key)]
        parts = [labels[key].format(getattr(self, key)).replace(":", "-") for key in changed]
        return "_".join([self.model, *parts])

    @property
    def is_alone(self) -> bool:
        """Whether attention is measured alone."""
        return self.head_dim is not None


COURSE_MODEL = {  # `program: cs336_basics`; the replaced function does the same, with the ranges of the handout
    "constructor": "cs336_basics.model:BasicsTransformerLM",
    "annotate": "modules",
    "replace": {"cs336_basics.model:scaled_dot_product_attention": "cs336_model.course:scaled_dot_product_attention"},
}


def read_config(values: Mapping[str, Any]) -> Config:
    """The checked config. Raises ConfigError."""
    values = dict(values)
    if values.get("program") == "cs336_basics":
        values["program"] = COURSE_MODEL
    config = convert(values, Config)
    require_known("grid", config.grid, config.grids)
    for grid, products in config.grids.items():
        for index, part in enumerate(products):
            kind = AttentionProduct if "program" in part else Product
            products[index] = convert(part, kind, f"grids.{grid}[{index}]")
    for index, part in enumerate(config.grids[config.grid]):
        for model in part.models if isinstance(part, Product) else ():
            require_known(f"grids.{config.grid}[{index}].models", model, config.models)
    for model, sizes in config.models.items():
        check_sizes(config, model, sizes)
    check_rules(config)
    return config


def convert(values: Mapping[str, Any], kind: type, path: str = "") -> Any:
    """The struct of these values, which are at this path of config.yaml. Raises ConfigError."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        problem, _, inner = str(error).replace("`", "").replace("[...]", "").partition(" - at ")
        key = (path + inner.replace("$", "")).strip(".")
        raise ConfigError(
            f"{key or 'at the top'}: {problem}; workflow/grid.py and cs336_model/spec.py have all keys and values"
        ) from None


def require_known(path: str, word: str, known: Mapping[str, Any]) -> None:
    """Raises ConfigError for a name that is not among the known ones."""
    if word not in known:
        raise ConfigError(f"{path}: {word!r} is not one of {', '.join(known)}")


def check_sizes(config: Config, model: str, sizes: dict[str, Any]) -> None:
    """Raises ConfigError for sizes that the constructor cannot take."""
    if double := sorted(set(sizes) & set(KEYS)):
        raise ConfigError(f"models.{model}.{double[0]}: each run has a {double[0]}; give the size another name")
    if not config.program.arguments:
        checked = convert(sizes, Sizes, f"models.{model}")
        if checked.d_model % (2 * checked.num_heads):
            heads = f"is not an even multiple of num_heads {checked.num_heads}, whose parts RoPE rotates in pairs"
            raise ConfigError(f"models.{model}: d_model {checked.d_model} {heads}")
        sizes.setdefault("rope_theta", checked.rope_theta)
    is_chosen = any(model in part.models for part in config.grids[config.grid] if isinstance(part, Product))
    for argument, value in config.program.arguments.items():
        if is_chosen and isinstance(value, str) and value.startswith("$"):
            known = dict.fromkeys([*KEYS, "vocab_size", *sizes])
            require_known(f"program.arguments.{argument} of models.{model}", value[1:], known)


def check_rules(config: Config) -> None:
    """Raises ConfigError for a custom class or rule that cannot be used. What checks them is only imported for them."""
    if not config.kernel_classes and not config.diagnosis_rules:
        return
    from kernel_tables.classes import users_rules
    from kernel_tables.diagnose import rules_of_entries
    from kernel_tables.errors import TraceError

    try:
        users_rules(config.kernel_classes)
        rules_of_entries(config.diagnosis_rules, "diagnosis_rules")
    except TraceError as error:
        raise ConfigError(str(error)) from None


def expand_grid(config: Config) -> dict[str, Run]:
    """The runs of the chosen grid by name, in the order of the file, with their stages. Raises ConfigError."""
    runs: dict[str, Run] = {}
    if len({type(part) for part in config.grids[config.grid]}) > 1:
        raise ConfigError(f"grids.{config.grid}: attention alone and models are in one grid; give each its own")
    for run in (run for part in config.grids[config.grid] for run in combine(config, part)):
        if reason := find_impossibility(config, run):
            raise ConfigError(f"grids.{config.grid}: {run.name} cannot be measured: {reason}")
        if earlier := runs.get(run.name):
            lengths = tuple(sorted({*earlier.context_lengths, *run.context_lengths}))
            run = add_stages(msgspec.structs.replace(run, context_lengths=lengths), *earlier.stages)
        runs[run.name] = run
    pattern = config.counters.runs
    if pattern == "shown":
        pattern = choose_shown({name: run for name, run in runs.items() if run.gpus == 1}) or ""
    counted = [name for name in fnmatch.filter(runs, pattern) if not runs[name].is_alone]
    return runs | {name: add_stages(runs[name], "counters") for name in counted}


def combine(config: Config, part: Product | AttentionProduct) -> Iterator[Run]:
    """A run of each combination of the values of a product, the last key changing fastest."""
    values = {
        "precision": part.precisions or [config.precision], "batch_size": part.batch_sizes or [config.batch_size],
        "compile": [{False: "off", True: "on"}.get(value, value) for value in part.compiles],
        "attention": part.attentions,
    }  # fmt: skip
    if isinstance(part, AttentionProduct):
        lengths, stages = tuple(sorted(part.context_lengths)), ("attention",)
        values = {"model": ["attention"], "head_dim": part.head_dims, **values}
    else:
        lengths, stages = (), tuple(stage for stage in STAGES if stage in ("timing", "capture", *part.stages))
        values = {"model": part.models, "context_length": part.context_lengths, "mode": part.modes, **values}
        values |= {"checkpoint": map(str, part.checkpoints), "gpus": part.gpus, "parallel": part.parallels}
        values |= {"optimizer": part.optimizers}
    for combination in product(*values.values()):
        yield Run(**dict(zip(values, combination, strict=True)), context_lengths=lengths, stages=stages)


def add_stages(run: Run, *stages: str) -> Run:
    """The run with these stages, too, all in their order."""
    return msgspec.structs.replace(run, stages=tuple(stage for stage in STAGES if stage in (*run.stages, *stages)))


def find_impossibility(config: Config, run: Run) -> str | None:
    """Why no machine can measure this run; None if it is possible, or only a machine knows."""
    if run.is_alone and run.compile != "off" and run.attention != "eager":
        return f"compile {run.compile} with attention {run.attention}: a fused kernel is not compiled; list eager"
    if run.gpus > 1 and (alone := {"energy", "counters"} & {*run.stages}):
        return f"stage {min(alone)} needs one GPU; list the other runs in another product"
    return find_conflict(describe(config, run, run.stages[0]))


def choose_shown(runs: Mapping[str, Run]) -> str | None:
    """The run whose step the page shows: the fullest mode, the first model, several GPUs, the context nearest to 512,
    the shortest name, which has the fewest values not at their default. None if no run has steps."""
    models = list(dict.fromkeys(run.model for run in runs.values()))
    modes = ["train_step", "forward_backward", "forward"]

    def rank(name: str) -> tuple:  # the lowest is shown
        run = runs[name]
        distance = abs(run.context_length - 512)
        return modes.index(run.mode), models.index(run.model), run.gpus == 1, distance, len(name), name

    return min((name for name, run in runs.items() if not run.is_alone), key=rank, default=None)


def describe(config: Config, run: Run, stage: str, process: int = 1) -> Spec:
    """What the process of a stage is told. It decides the result, together with code and versions."""
    settings = getattr(config, "operator" if stage == "attention" else stage)
    told = msgspec.structs.asdict(settings) | msgspec.structs.asdict(run)
    if not run.is_alone:
        sizes = dict(config.models[run.model])
        vocab_size = sizes.pop("vocab_size", None) or config.vocab_size
        told |= {**msgspec.structs.asdict(config.program), "vocab_size": vocab_size, "sizes": sizes}
    told |= {"run": run.name, "stage": stage, "process": process, "seed": config.seed, "device": config.device}
    told["environment"] = {name: os.environ.get(name) for name in sorted(config.environment)}
    return Spec(**{name: told[name] for name in Spec.__struct_fields__ if name in told})


SUMMARIES = ["forward_time", "top_kernels", "forward_parts", "class_shares", "training_parts"]  # of (a) to (e)
SUMMARIES += ["attention", "attention_backward"]
STUDIES = {  # by question: its script, its tables and figures, and what else its document shows
    "time_lost": ("time_lost", ["time_lost"], [], []),
    "f_precision": ("speed_ups", ["speed_ups"], ["speed_ups_precision"], []),
    "g_compile": ("speed_ups", ["speed_ups"], ["speed_ups_compile"], []),
    "h_attention": ("speed_ups", ["speed_ups"], ["speed_ups_attention"], []),
    "i_memory": ("memory_parts", ["memory_peak"], ["memory_timeline"], ["memory_activations", "memory_totals"]),
    "j_checkpoint": ("speed_ups", ["speed_ups"], ["speed_ups_checkpoint"], ["memory_totals", "memory_activations"]),
    "l_counters": ("counters", ["counter_kernels"], ["measured_roofline"], []),
    "m_energy": ("energy", ["energy"], ["energy"], []),
    "n_communication": ("communication", ["communication_times", "communication_scaling"], ["communication"],
                        ["communication_steps"]),
    "optimizer": ("speed_ups", ["speed_ups"], ["speed_ups_optimizer"], []),
    "attention_sweep": ("attention_sweep", ["attention_sweep"], ["attention_sweep"], []),
}  # fmt: skip


def questions(runs: Mapping[str, Run]) -> list[str]:
    """The names of the documents, which are those of their templates: only what the grid asks."""
    if any(run.is_alone for run in runs.values()):
        return ["attention_sweep"]
    values = {key: {getattr(run, key) for run in runs.values()} for key in KEYS}
    stages = {stage for run in runs.values() for stage in run.stages}
    asked = {
        "a_forward_time": True, "b_top_kernels": True, "c_other_kernels": True, "d_training_vs_inference": True,
        "e_attention": True, "f_precision": len(values["precision"]) > 1, "g_compile": len(values["compile"]) > 1,
        "h_attention": len(values["attention"]) > 1, "i_memory": "memory" in stages,
        "j_checkpoint": len(values["checkpoint"]) > 1, "l_counters": "counters" in stages,
        "m_energy": "energy" in stages, "n_communication": values["gpus"] != {1},
        "optimizer": len(values["optimizer"]) > 1, "time_lost": True,
    }  # fmt: skip
    return [name for name, is_asked in asked.items() if is_asked]
