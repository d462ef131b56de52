"""The runs that config.yaml declares, and what each of their two processes is told.

The plan of a grid is made on every start of Snakemake, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.study.unusable import unusable_values

SCHEMA = Path(__file__).with_name("config.schema.yaml")
ROPE_THETA = 10000.0
PREFERRED_CONTEXT = 512
FULLEST_FIRST = ("train_step", "forward_backward", "forward")


class ConfigError(OutsideError):
    """config.yaml asks for something that cannot be run; the message is one line."""


@dataclass(frozen=True)
class Run:
    """One model x context length x mode of the grid."""

    model: str
    context_length: int
    mode: str

    @property
    def name(self) -> str:
        """The folder below results/runs, and the name in every table."""
        return f"{self.model}_ctx{self.context_length}_{self.mode}"


def checked_config(config: dict) -> dict:
    """The configuration itself, once it meets the schema and its parts fit together.

    Raises ConfigError with one line that names the key, the value and what was expected.
    """
    _check_schema(config)
    for message in unusable_values(config):
        raise ConfigError(message)
    if config["grid"] not in config["grids"]:
        raise ConfigError(f"grid: {config['grid']!r} is not one of the grids: {', '.join(config['grids'])}")
    for name, shape in config["models"].items():
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
    """The runs of the chosen grid by name, in the order of the file, each once."""
    runs = {}
    for product in config["grids"][config["grid"]]:
        for model in product["models"]:
            if model not in config["models"]:
                declared = ", ".join(config["models"])
                raise ConfigError(f"grids.{config['grid']}: model {model!r} is not declared under models: {declared}")
            for context_length in product["context_lengths"]:
                for mode in product["modes"]:
                    run = Run(model, context_length, mode)
                    runs[run.name] = run
    return runs


def run_to_show(runs: dict[str, Run]) -> str:
    """The run whose step is worth a timeline: the fullest mode, the first model of the grid, context 512 or near it."""
    models = list(dict.fromkeys(run.model for run in runs.values()))

    def rank(name: str) -> tuple:
        run = runs[name]
        far = abs(run.context_length - PREFERRED_CONTEXT)
        return FULLEST_FIRST.index(run.mode), models.index(run.model), far, name

    return min(runs, key=rank)


def timing_specification(config: dict, run: Run) -> str:
    """What the timing process is told: canonical JSON, so that Snakemake sees a change and nothing else."""
    return _canonical({"program": _program(config, run, "timing"), "environment": _environment(config)})


def capture_specification(config: dict, run: Run) -> str:
    """What the capture process is told: canonical JSON, as for timing, with the profiler's own settings."""
    return _canonical(
        {
            "program": _program(config, run, "capture"),
            "environment": _environment(config),
            "backend": config["capture"]["backend"],
            "nsys_options": config["capture"].get("nsys_options", []),
        }
    )


def grid_part(config: dict) -> str:
    """The part of the configuration that decides what the chosen grid measures, as canonical JSON."""
    used = {run.model for run in grid_runs(config).values()}
    keys = ("grid", "batch_size", "vocab_size", "precision", "seed", "device", "timing", "capture")
    part = {key: config[key] for key in keys}
    part["grids"] = {config["grid"]: config["grids"][config["grid"]]}
    part["models"] = {name: shape for name, shape in config["models"].items() if name in used}
    part["program"] = {key: config["program"].get(key, {}) for key in ("constructor", "annotate")}
    part["environment"] = _environment(config)
    return _canonical(part)


def grid_plan(config: dict) -> dict:
    """The grid's name and its runs in order, each with what its two processes are told."""
    runs = [
        {
            "run": name,
            "model": run.model,
            "context_length": run.context_length,
            "mode": run.mode,
            "timing_specification": json.loads(timing_specification(config, run)),
            "capture_specification": json.loads(capture_specification(config, run)),
        }
        for name, run in grid_runs(config).items()
    ]
    return {"grid": config["grid"], "runs": runs}


def _program(config: dict, run: Run, stage: str) -> dict:
    shape = config["models"][run.model]
    return {
        "run": run.name,
        "model": run.model,
        "constructor": config["program"]["constructor"],
        "constructor_args": {
            "vocab_size": config["vocab_size"],
            "context_length": run.context_length,
            **{key: shape[key] for key in ("d_model", "num_layers", "num_heads", "d_ff")},
            "rope_theta": float(shape.get("rope_theta", ROPE_THETA)),
        },
        "annotate": config["program"].get("annotate", {}),
        "mode": run.mode,
        "batch_size": config["batch_size"],
        "context_length": run.context_length,
        "vocab_size": config["vocab_size"],
        "precision": config["precision"],
        "warmup_steps": config[stage]["warmup_steps"],
        "measured_steps": config[stage]["measured_steps"],
        "seed": config["seed"],
        "device": config["device"],
    }


def _environment(config: dict) -> list[str]:
    return sorted(set(config.get("environment", [])))


def _canonical(specification: dict) -> str:
    return json.dumps(specification, sort_keys=True, separators=(",", ":"))


def _check_schema(config: dict) -> None:
    import jsonschema
    import yaml

    schema = yaml.safe_load(SCHEMA.read_text())
    validator = jsonschema.Draft202012Validator(schema)
    error = jsonschema.exceptions.best_match(validator.iter_errors(config))
    if error is not None:
        where = ".".join(str(part) for part in error.absolute_path) or "top level"
        raise ConfigError(f"{where}: {_explained(error)}".replace("\n", " "))


def _explained(error) -> str:
    """One line on a schema error: the value, and what the schema wanted."""
    if error.validator == "additionalProperties":
        known = ", ".join(error.schema["properties"])
        unknown = sorted(set(error.instance) - set(error.schema["properties"]))
        return f"unknown key {', '.join(map(repr, unknown))}; known keys: {known}"
    if error.validator == "pattern":
        return f"{error.instance!r} is not allowed here; it must match {error.validator_value}"
    return error.message if len(error.message) < 300 else error.message[:300] + " ..."
