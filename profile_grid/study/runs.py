"""The runs that config.yaml declares, and the specification of each process of each run.

The plan of a grid is made on every start of Snakemake, so nothing heavy is imported here.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from profile_grid.study import workloads
from profile_grid.study.dimensions import (
    DIMENSIONS,
    FULLEST_FIRST,
    GPUS,
    MODEL,
    Dimension,
    Value,
    combinations,
    run_name,
)
from profile_grid.study.schema import ConfigError, check_schema, value_errors
from profile_grid.study.stage import SHOWN_PATTERN, Setting, Stage
from profile_grid.study.stages import MEMORY, NOT_ASKED, STAGES, TIMING

PREFERRED_CONTEXT = 512  # of the run whose step is shown
GRID_KEYS = ("grid", "vocab_size", "seed", "device")  # of config.yaml


@dataclass(frozen=True)
class Run:
    """One value of every dimension, and the stages that are measured."""

    values: Mapping[str, Value]
    stages: tuple[Stage, ...] = tuple(
        stage for stage in STAGES if stage.of_every_run and stage.workload is workloads.MODEL_STEPS
    )
    workload: workloads.Workload = workloads.MODEL_STEPS
    process_values: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)  # within a process, by list_key

    def __getitem__(self, dimension: str) -> Value:
        return self.values[dimension]

    @property
    def name(self) -> str:
        """The folder below results/runs, and the name in every table."""
        return run_name(self.values)


def checked_config(config: dict) -> dict:
    """The same configuration, after checks of the schema and of how its parts fit together.

    Raises ConfigError with one line that names the key, the value and what was expected.
    """
    check_schema(config)
    for message in value_errors(config):
        raise ConfigError(message)
    if config["grid"] not in config["grids"]:
        raise ConfigError(f"grid: {config['grid']!r} is not one of the grids: {', '.join(config['grids'])}")
    for message in workloads.program_errors(config):
        raise ConfigError(message)
    shapes = {} if workloads.has_custom_arguments(config) else config["models"]  # custom sizes may have any names
    for name, shape in shapes.items():
        if shape["d_model"] % shape["num_heads"]:
            raise ConfigError(
                f"models.{name}: d_model {shape['d_model']} is not divisible by num_heads {shape['num_heads']};"
                " every head takes an equal part of d_model"
            )
        if shape["d_model"] // shape["num_heads"] % 2:
            raise ConfigError(
                f"models.{name}: d_model {shape['d_model']} / num_heads {shape['num_heads']} is odd;"
                " RoPE rotates pairs, so a head needs an even number of dimensions"
            )
    return config


def grid_runs(config: dict) -> dict[str, Run]:
    """The runs of the chosen grid by name, in the order of the file, each once. Raises ConfigError."""
    runs = _distinct_runs(config)
    for stage in STAGES:
        if (shown_run := _shown_run(config, stage, runs)) is not None:
            runs[shown_run.name] = _with_stages(shown_run, stage)
    for run in runs.values():
        for stage in run.stages:
            if not stage.of_every_run and not _suits(stage, run):
                raise ConfigError(
                    f"grids.{config['grid']}: {run.name}: stage {stage.name} needs one GPU; list"
                    " other numbers of gpus in another product"
                )
    return runs


def _distinct_runs(config: dict) -> dict[str, Run]:
    """The runs of all products by name. A run of several products has the stages and process values of each."""
    runs = {}
    for run in _runs_of_products(config):
        if reason := run.workload.impossibility(config, run.values):
            raise ConfigError(f"grids.{config['grid']}: {run.name} cannot be measured: {reason}")
        earlier = runs.setdefault(run.name, run)
        if earlier.values != run.values:
            raise ConfigError(f"grids.{config['grid']}: two different runs are named {run.name}; rename a model")
        if (earlier.stages, earlier.process_values) != (run.stages, run.process_values):
            united = {key: {*values, *run.process_values[key]} for key, values in earlier.process_values.items()}
            process_values = {key: tuple(sorted(values)) for key, values in united.items()}
            runs[run.name] = _with_stages(replace(earlier, process_values=process_values), *run.stages)
    return runs


def _runs_of_products(config: dict) -> Iterator[Run]:
    """The runs of each product of the grid; a run in several products comes several times."""
    products = config["grids"][config["grid"]]
    if len({workloads.workload_of(product) for product in products}) > 1:
        programs = ", ".join(sorted({product["program"] for product in products if "program" in product}))
        raise ConfigError(
            f"grids.{config['grid']}: program {programs} and models are in one grid; give each a separate grid"
        )
    for product in products:
        workload = workloads.workload_of(product)
        for model in product.get(MODEL.list_key, ()):
            if model not in config["models"]:
                declared = ", ".join(config["models"])
                raise ConfigError(f"grids.{config['grid']}: model {model!r} is not declared under models: {declared}")
        # a product of an operator lists no models: the name of the operator is the model of its runs
        defaults = {dimension.key: dimension.default for dimension in DIMENSIONS} | {MODEL.key: workload.name}
        list_keys = [dimension.list_key for dimension in workload.process_dimensions]
        process_values = {key: tuple(sorted(product[key])) for key in list_keys}
        lists = {dimension.key: _values_of(config, product, dimension, workload) for dimension in workload.dimensions}
        for combination in combinations(lists):
            values = defaults | combination
            yield Run(values, requested_stages(config, product, run_name(values)), workload, process_values)


def _shown_run(config: dict, stage: Stage, runs: Mapping[str, Run]) -> Run | None:
    """The run that `runs: shown` means for a stage, chosen like the run that the page shows, but only among the runs
    that suit the stage. None if the setting has another value.

    If no run suits the stage: None where `shown` is only the default; ConfigError where config.yaml has it.
    """
    if _pattern_of_runs(config, stage) != SHOWN_PATTERN:
        return None
    suitable = {name: run for name, run in runs.items() if _suits(stage, run)}
    if suitable:
        return runs[shown_run_name(suitable)]
    if settings_of(config, stage)["runs"] is not None:
        raise ConfigError(
            f"{stage.name}.runs: {SHOWN_PATTERN!r} is a run on one GPU, and grids.{config['grid']} has"
            f" none; add one to the grid, or leave {stage.name}.runs out"
        )
    return None


def _pattern_of_runs(config: dict, stage: Stage) -> str:
    """The setting `runs` of a stage: a pattern of names of runs, or `shown`, the default. Empty, which matches no name,
    for a stage without this setting."""
    if "runs" not in stage.settings:
        return ""
    pattern = settings_of(config, stage)["runs"]
    return SHOWN_PATTERN if pattern is None else pattern


def _suits(stage: Stage, run: Run) -> bool:
    """Whether a stage that is not of every run can be measured in this one. On several GPUs, only MEMORY can."""
    return stage.workload is run.workload and (stage is MEMORY or run[GPUS.key] == 1)


def _with_stages(run: Run, *added: Stage) -> Run:
    """The run with these stages added, all in their order."""
    return replace(run, stages=tuple(stage for stage in STAGES if stage in (*run.stages, *added)))


def requested_stages(config: dict, product: Mapping, name: str) -> tuple[Stage, ...]:
    """The stages of the run with this name in a product: those of every run, those that the product lists, and those
    with a setting `runs` whose pattern fits the name."""
    return tuple(
        stage
        for stage in STAGES
        if stage.workload is workloads.workload_of(product)
        and (
            stage.of_every_run
            or stage.name in product.get("stages", ())
            or fnmatchcase(name, _pattern_of_runs(config, stage))
        )
    )


def planned_rows(config: dict, runs: Mapping[str, Run]) -> list[dict]:
    """The rows of the table of runs, with only the columns that decide which questions a grid asks. The status of a
    requested stage is None, since it is not measured yet."""
    warmup_steps = settings_of(config, TIMING)["warmup_steps"]
    return [
        {**run.values, "steps_warmed": warmup_steps if TIMING in run.stages else 0}
        | {stage.status_column: None if stage in run.stages else NOT_ASKED for stage in STAGES}
        for run in runs.values()
    ]


def default_value(config: dict, dimension: Dimension) -> Value | None:
    """The value of the runs of a product that does not list this dimension."""
    return config.get(dimension.setting, dimension.default) if dimension.setting else dimension.default


def _values_of(config: dict, product: Mapping, dimension: Dimension, workload: workloads.Workload) -> list[Value]:
    if dimension.list_key in product:
        return [dimension.value_of(value) for value in product[dimension.list_key]]
    return [workload.defaults.get(dimension.key, default_value(config, dimension))]


def shown_run_name(runs: Mapping[str, Run]) -> str | None:
    """The run whose step is shown as a timeline, by these criteria in order: the fullest mode, the first model of the
    grid, several GPUs, the fewest dimensions that are not at their default, the context nearest to 512, the name. None
    if no run has steps."""
    models = list(dict.fromkeys(run["model"] for run in runs.values()))

    def rank(name: str) -> tuple:  # the lowest is shown
        run = runs[name]
        mode, model = FULLEST_FIRST.index(run["mode"]), models.index(run["model"])
        is_on_one_gpu = run[GPUS.key] == GPUS.default
        variations = sum(dim.default is not None and run[dim.key] != dim.default for dim in DIMENSIONS)
        distance = abs(run["context_length"] - PREFERRED_CONTEXT)
        return mode, model, is_on_one_gpu, variations, distance, name

    return min((name for name, run in runs.items() if run.workload is workloads.MODEL_STEPS), key=rank, default=None)


def specification_json(config: dict, run: Run, stage: Stage) -> str:
    """The specification of the process of a stage: canonical JSON, which differs only if a value differs."""
    common = {"program": _program_specification(config, run, stage), "environment": environment_of(config)}
    stage_settings = settings_of(config, stage, lambda setting: not (setting.of_program or setting.of_study))
    return _canonical_json(common | stage_settings)


def grid_settings_json(config: dict) -> str:
    """The part of the configuration that decides what the chosen grid measures, as canonical JSON."""
    used_models = {run["model"] for run in grid_runs(config).values()}
    part = {key: config[key] for key in GRID_KEYS}
    part |= {dimension.setting: default_value(config, dimension) for dimension in DIMENSIONS if dimension.setting}
    part |= {stage.name: settings_of(config, stage) for stage in STAGES}
    part["grids"] = {config["grid"]: config["grids"][config["grid"]]}
    part["models"] = {name: shape for name, shape in config["models"].items() if name in used_models}
    part["program"] = {key: value for key, value in workloads.program_of(config).items() if key != "sources"}
    part["environment"] = environment_of(config)
    return _canonical_json(part)


def grid_plan(config: dict) -> dict:
    """The grid's name and its runs in order: name, dimensions, values in a process, specification of each stage."""
    runs = [
        {
            "run": name,
            **run.values,
            **{key: list(values) for key, values in run.process_values.items()},
            "specifications": {stage.name: json.loads(specification_json(config, run, stage)) for stage in run.stages},
        }
        for name, run in grid_runs(config).items()
    ]
    return {"grid": config["grid"], "runs": runs}


def _program_specification(config: dict, run: Run, stage: Stage) -> dict:
    return {
        "run": run.name,
        "dimensions": {dimension.key: run[dimension.key] for dimension in run.workload.dimensions},
        **{key: list(values) for key, values in run.process_values.items()},
        **run.workload.specific_settings(config, run.values),
        "seed": config["seed"],
        "device": config["device"],
        **settings_of(config, stage, lambda setting: setting.of_program),
    }


def settings_of(config: dict, stage: Stage, is_wanted: Callable[[Setting], bool] = lambda setting: True) -> dict:
    """The values of those settings of a stage for which `is_wanted` is true; by default of all."""
    section = config.get(stage.name, {})
    return {
        name: section.get(name, list(setting.default) if isinstance(setting.default, tuple) else setting.default)
        for name, setting in stage.settings.items()
        if is_wanted(setting)
    }


def environment_of(config: dict) -> list[str]:
    """The names, sorted, of environment variables that the measured program may see besides those that all may see."""
    return sorted(set(config.get("environment", [])))


def _canonical_json(values: dict) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
