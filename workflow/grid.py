"""From the values of config.yaml to the runs of a grid, and to what the process of each is told. Imports no torch.

config.yaml -> Config (checked; an error names the key) -> Run (one per combination of values) -> Spec (per stage)
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import product
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta

from cs336_model.results import STAGES
from cs336_model.spec import OWN_MODEL, Compile, Mode, Optimizer, Parallel, Precision, Spec, explain_impossible

KEYS = (
    "model", "context_length", "mode", "precision", "batch_size", "compile", "attention", "checkpoint", "gpus",
    "parallel", "optimizer",
)  # fmt: skip
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
    """The sizes of this project's model."""

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
    arguments: dict[str, Any] | None = None  # "$name" is a value of the run; None: those of this project's model
    annotate: dict[str, Importable] | Literal["modules"] = {}  # name of a range -> function
    replace: dict[Importable, Importable] = {}
    sources: list[str] = []  # files in the working folder whose changes make measurements stale


class Timing(Struct):
    """A process without a profiler."""

    warmup_steps: Warmup = 5
    measured_steps: Count = 10
    processes: Count = 1  # that time each run


class Capture(Struct):
    """A process under a profiler."""

    backend: Literal["auto", "nsys", "torch"] = "auto"  # auto: nsys if it and a GPU are present
    warmup_steps: Warmup = 2
    measured_steps: Count = 3
    nsys_options: list[
        Annotated[str, Meta(pattern=r"^--(?!output|export|force-overwrite|command-file)[a-z][a-z-]*(=[\w,.:-]+)?\Z")]
    ] = []
    keep_report: bool = False  # keep capture.nsys-rep: it holds the environment of other processes of the host


class Memory(Struct):
    """A process whose allocations are recorded."""

    warmup_steps: Warmup = 1
    measured_steps: Count = 1


class Energy(Struct):
    """A process that steps for windows of seconds."""

    warmup_steps: Warmup = 5
    measured_steps: Count = 3
    windows: Annotated[int, Meta(ge=3, le=1000)] = 3
    window_s: Annotated[float, Meta(ge=5, le=600)] = 5.0


class Counters(Struct):
    """A process under Nsight Compute."""

    runs: str = "shown"  # a pattern of names of runs, or the run whose step the page shows
    layers: Count = 2  # of the counted model at most, since layers launch the same kernels
    warmup_steps: Warmup = 1
    measured_steps: Count = 1
    metrics: list[str] = []  # further metrics of ncu


class Operator(Struct):
    """A process that measures attention alone."""

    warmup_passes: Warmup = 5
    measured_passes: Count = 100
    bench_s: Annotated[float, Meta(ge=0, le=60)] = 0.1  # of single calls of each pass


class Config(Struct):
    """config.yaml."""

    grid: str
    grids: dict[Name, list[dict]]
    models: dict[Name, dict[str, Any]]
    program: Program
    batch_size: Count = 4
    vocab_size: Count = 10_000
    precision: Precision = "fp32"
    seed: Annotated[int, Meta(ge=0, lt=2**32)] = 0
    device: Literal["auto", "cuda", "cpu"] = "auto"
    timing: Timing = msgspec.field(default_factory=Timing)
    capture: Capture = msgspec.field(default_factory=Capture)
    memory: Memory = msgspec.field(default_factory=Memory)
    energy: Energy = msgspec.field(default_factory=Energy)
    counters: Counters = msgspec.field(default_factory=Counters)
    operator: Operator = msgspec.field(default_factory=Operator)
    time_limit_s: Annotated[float, Meta(ge=1)] = 900.0
    environment: list[Annotated[str, Meta(pattern=r"^[A-Za-z_]\w*\Z")]] = []
    kernel_classes: list[dict[str, str]] = []
    diagnosis_rules: list[dict] = []
    formats: tuple[Literal["markdown", "latex", "typst"], ...] = ("markdown",)
    before: str = ""  # of `snakemake compare`, as are the next three
    after: str = ""
    varies: Literal[("", *KEYS)] = ""
    fail_on: Literal["nothing", "slower", "faster", "changed"] = "nothing"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One configuration of the grid. Of attention alone, context_length and mode are None."""

    model: str
    context_length: int | None = None
    mode: str | None = None
    precision: str = "fp32"
    batch_size: int = 4
    compile: str = "off"
    attention: str = "eager"
    checkpoint: str = "0"
    gpus: int = 1
    parallel: str = "none"
    optimizer: str = "adamw"
    head_dim: int | None = None  # of attention alone, as are the context lengths that it measures
    context_lengths: tuple[int, ...] = ()
    stages: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The folder below results/runs, and the name in every table. It leaves out what is at its default."""
        parts = [
            self.model,
            self.head_dim is not None and f"d{self.head_dim}",
            self.context_length is not None and f"ctx{self.context_length}",
            self.mode,
            self.precision != "fp32" and self.precision,
            self.batch_size != 4 and f"bs{self.batch_size}",
            self.compile != "off" and f"compile-{self.compile}",
            self.attention != "eager" and f"{self.attention.replace(':', '-')}-attention",
            self.checkpoint != "0" and f"checkpoint{self.checkpoint}",
            self.gpus != 1 and f"gpus{self.gpus}",
            self.parallel != "none" and self.parallel,
            self.optimizer != "adamw" and self.optimizer,
        ]
        return "_".join(part for part in parts if part)

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
    config = convert(values, Config, "")
    if config.grid not in config.grids:
        raise ConfigError(f"grid: {config.grid!r} is not in grids{nearest(config.grid, config.grids)}")
    for grid, products in config.grids.items():
        for index, part in enumerate(products):
            path = f"grids.{grid}[{index}]."
            products[index] = convert(part, AttentionProduct if "program" in part else Product, path)
    for index, part in enumerate(config.grids[config.grid]):
        if isinstance(part, Product):
            check_models(config, part, f"grids.{config.grid}[{index}].")
    for model, sizes in config.models.items():
        check_sizes(config, model, sizes)
    check_rules(config)
    return config


def convert(values: Mapping[str, Any], kind: type, path: str) -> Any:
    """The struct of these values. Raises ConfigError; keys that it does not have are looked for first."""
    check_keys(values, kind, path)
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        problem, _, key = str(error).partition(" - at ")
        key = key.strip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
        if word := re.fullmatch("Invalid enum value '(.*)'", problem):
            problem = f"{word[1]!r} is not a value of this key{nearest(word[1], list_choices(kind, key.split('.')))}"
        raise ConfigError(f"{path}{key}".rstrip(".") + f": {problem}" if path or key else problem) from None


def list_choices(kind: Any, keys: list[str]) -> list[str]:
    """The texts among which the value of a key of a struct is chosen, by the keys that lead to it."""
    for key in keys:
        kind = next((field.type for field in msgspec.structs.fields(kind) if field.name == key.partition("[")[0]), kind)
    if get_origin(kind) is Literal:
        return [value for value in get_args(kind) if isinstance(value, str)]
    return [word for part in get_args(kind) for word in list_choices(part, [])]


def check_keys(values: Mapping[str, Any], kind: type, path: str) -> None:
    """Raises ConfigError for a key that this struct, or one in it, does not have, with the nearest that it has."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in values.items():
        if key not in fields:
            raise ConfigError(f"{path}{key}: unknown key{nearest(str(key), fields)}")
        if isinstance(fields[key], type) and issubclass(fields[key], Struct) and isinstance(value, Mapping):
            check_keys(value, fields[key], f"{path}{key}.")


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of a message: the known word that is nearest, or all."""
    known = list(known)
    close = get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def check_models(config: Config, part: Product, path: str) -> None:
    """Raises ConfigError for a model that there is not, or one without a size that an argument names."""
    for model in part.models:
        if model not in config.models:
            raise ConfigError(f"{path}models: {model!r} is not in models{nearest(model, config.models)}")
        values = [*KEYS, "vocab_size", *config.models[model]]
        for argument, value in (config.program.arguments or {}).items():
            if isinstance(value, str) and value.startswith("$") and value[1:] not in values:
                known = nearest(value, values)
                raise ConfigError(f"program.arguments.{argument}: {value} is not a size of {model}{known}")


def check_sizes(config: Config, model: str, sizes: dict[str, Any]) -> None:
    """Raises ConfigError for sizes that the constructor cannot take."""
    if config.program.arguments is None:
        checked = convert(sizes, Sizes, f"models.{model}.")
        if checked.d_model % (2 * checked.num_heads):
            raise ConfigError(
                f"models.{model}: d_model {checked.d_model} is not an even multiple of num_heads {checked.num_heads};"
                " each head has an equal part of d_model, which RoPE rotates in pairs"
            )
        config.models[model] = {"rope_theta": checked.rope_theta} | sizes
    if double := sorted(set(sizes) & set(KEYS)):
        raise ConfigError(f"models.{model}.{double[0]}: each run has a {double[0]}; give the size another name")


def check_rules(config: Config) -> None:
    """Raises ConfigError for a custom class or rule that cannot be used. What checks them is only imported for them."""
    if not config.kernel_classes and not config.diagnosis_rules:
        return
    from kernel_tables.classes import users_rules
    from kernel_tables.errors import TraceError
    from kernel_tables.rules import rules_of_entries

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
        name = run.name
        if reason := find_impossibility(config, run):
            raise ConfigError(f"grids.{config.grid}: {name} cannot be measured: {reason}")
        if earlier := runs.get(name):
            lengths = tuple(sorted({*earlier.context_lengths, *run.context_lengths}))
            run = add_stages(msgspec.structs.replace(run, context_lengths=lengths), *earlier.stages)
        runs[name] = run
    chosen = [name for name, run in runs.items() if fnmatchcase(name, config.counters.runs) and not run.is_alone]
    if config.counters.runs == "shown":
        shown = choose_shown({name: run for name, run in runs.items() if run.gpus == 1})
        chosen = [shown] if shown else []
    for name in chosen:
        runs[name] = add_stages(runs[name], "counters")
    return runs


def combine(config: Config, part: Product | AttentionProduct) -> Iterator[Run]:
    """A run of each combination of the values of a product, the last key changing fastest."""
    compiles = [{False: "off", True: "on"}.get(value, value) for value in part.compiles]
    precisions = part.precisions or [config.precision]
    if isinstance(part, AttentionProduct):
        for width, precision, batch, compiled, attention in product(
            part.head_dims, precisions, part.batch_sizes, compiles, part.attentions
        ):
            yield Run(
                model="attention", head_dim=width, precision=precision, batch_size=batch, compile=compiled,
                attention=attention, context_lengths=tuple(sorted(part.context_lengths)), stages=("attention",),
            )  # fmt: skip
        return
    values = (
        part.models, part.context_lengths, part.modes, precisions, part.batch_sizes or [config.batch_size], compiles,
        part.attentions, map(str, part.checkpoints), part.gpus, part.parallels, part.optimizers,
    )  # fmt: skip
    stages = tuple(stage for stage in STAGES if stage in ("timing", "capture", *part.stages))
    for combination in product(*values):
        yield Run(**dict(zip(KEYS, combination, strict=True)), stages=stages)


def add_stages(run: Run, *stages: str) -> Run:
    """The run with these stages, too, all in their order."""
    return msgspec.structs.replace(run, stages=tuple(stage for stage in STAGES if stage in (*run.stages, *stages)))


def find_impossibility(config: Config, run: Run) -> str | None:
    """Why no machine can measure this run; None if it is possible, or only a machine knows."""
    if run.is_alone and run.compile != "off" and run.attention != "eager":
        return f"compile {run.compile} with attention {run.attention}: a fused kernel is not compiled; list eager"
    if run.gpus > 1 and (alone := {"energy", "counters"} & {*run.stages}):
        return f"stage {min(alone)} needs one GPU; list the other runs in another product"
    return explain_impossible(describe(config, run, run.stages[0]))


def choose_shown(runs: Mapping[str, Run]) -> str | None:
    """The run whose step the page shows: the fullest mode, the first model, several GPUs, the fewest values not at
    their default, the context nearest to 512, the name. None if no run has steps."""
    models = list(dict.fromkeys(run.model for run in runs.values()))
    modes = ["train_step", "forward_backward", "forward"]

    def rank(name: str) -> tuple:  # the lowest is shown
        run = runs[name]
        other = name.removeprefix(f"{run.model}_ctx{run.context_length}_{run.mode}").count("_")
        distance = abs(run.context_length - 512)
        return modes.index(run.mode), models.index(run.model), run.gpus == 1, other, distance, name

    return min((name for name, run in runs.items() if not run.is_alone), key=rank, default=None)


def describe(config: Config, run: Run, stage: str, process: int = 1) -> Spec:
    """What the process of a stage is told. It decides the result, together with code and versions."""
    settings = getattr(config, "operator" if stage == "attention" else stage)
    told = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in ("processes", "runs")}
    told |= {name: getattr(run, name) for name in run.__struct_fields__ if name != "stages"}
    if not run.is_alone:
        sizes = dict(config.models[run.model])
        told["vocab_size"] = sizes.pop("vocab_size", None) or config.vocab_size
        program = {name: getattr(config.program, name) for name in ("constructor", "config", "annotate", "replace")}
        told |= {"sizes": sizes, **program, "arguments": config.program.arguments or {}}
    environment = {name: os.environ.get(name) for name in sorted(config.environment)}
    return Spec(**told, run=run.name, stage=stage, process=process, seed=config.seed, device=config.device,
                environment=environment)  # fmt: skip


def questions(config: Config, runs: Mapping[str, Run]) -> list[str]:
    """The names of the documents, which are those of their templates: only what the grid asks."""
    some = list(runs.values())
    if any(run.is_alone for run in some):
        return ["attention_sweep"]
    asked = {
        "a_forward_time": True, "b_top_kernels": True, "c_other_kernels": True, "d_training_vs_inference": True,
        "e_attention": True,
        "f_precision": len({run.precision for run in some}) > 1,
        "g_compile": len({run.compile for run in some}) > 1,
        "h_attention": len({run.attention for run in some}) > 1,
        "i_memory": any("memory" in run.stages for run in some),
        "j_checkpoint": len({run.checkpoint for run in some}) > 1,
        "k_warmup": config.timing.warmup_steps > 0,
        "l_counters": any("counters" in run.stages for run in some),
        "m_energy": any("energy" in run.stages for run in some),
        "n_communication": any(run.gpus > 1 for run in some),
        "time_lost": True,
    }  # fmt: skip
    return [name for name, is_asked in asked.items() if is_asked]
