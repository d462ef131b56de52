"""The measured program as config.yaml declares it, be it by one word. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cs336_model.arguments import MARK, OUR_ARGUMENTS, names_told
from profile_grid.study.dimensions import KEYS

ROPE_THETA = 10000.0
KNOWN_PROGRAMS: dict[str, dict[str, Any]] = {  # what one word stands for
    "cs336_basics": {  # the course's own model; its attention with ranges inside, as its handout puts one in its place
        "constructor": "cs336_basics.model:BasicsTransformerLM",
        "annotate": "modules",
        "replace": {
            "cs336_basics.model:scaled_dot_product_attention": (
                "cs336_model.model.course_attention:scaled_dot_product_attention"
            )
        },
    },
}
NOTHING_ELSE = {"config": None, "arguments": None, "annotate": {}, "replace": {}, "sources": []}


def program_of(config: Mapping) -> dict[str, Any]:
    """Every key of the program that a configuration declares; `arguments` is None where it calls the model as ours."""
    declared = config["program"]
    return NOTHING_ELSE | (KNOWN_PROGRAMS[declared] if isinstance(declared, str) else dict(declared))


def has_own_arguments(config: Mapping) -> bool:
    """Whether the program declares what its constructor is called with, so that a model's sizes may be any."""
    return program_of(config)["arguments"] is not None


def functions_named(program: Mapping) -> list[str]:
    """Every "module:function" that a program names: what they stand in decides what is measured."""
    annotated = program["annotate"].values() if isinstance(program["annotate"], Mapping) else ()
    makers = [program["constructor"], *([program["config"]] if program["config"] else [])]
    return [*makers, *annotated, *program["replace"], *program["replace"].values()]


def told_of_model(config: Mapping, model: str) -> dict[str, Any]:
    """What the measured program is told of its model: what makes it, its sizes, and its functions with ranges."""
    program, sizes = program_of(config), config["models"][model]
    told = {key: value for key, value in program.items() if key != "sources"} | {"sizes": sizes}
    if program["arguments"] is None:
        sizes = sizes | {"rope_theta": float(sizes.get("rope_theta", ROPE_THETA))}
        told |= {"arguments": OUR_ARGUMENTS, "sizes": sizes}
    return told


def unusable_program(config: Mapping) -> Iterator[str]:
    """One line for each argument without a value, and each size whose name is taken, of the models of the grid."""
    known = (*KEYS, "vocab_size")
    models = [name for product in config["grids"][config["grid"]] for name in product.get("models", [])]
    for model in dict.fromkeys(name for name in models if name in config["models"]):
        sizes = config["models"][model]
        for name in sorted(set(known) & set(sizes)):
            yield f"models.{model}.{name}: every run has a {name} already; give the size another name"
        for argument, name in names_told(program_of(config)["arguments"] or {}).items():
            if name not in (*known, *sizes):
                yield (
                    f"program.arguments.{argument}: {MARK}{name} is no size of models.{model} ({', '.join(sizes)})"
                    " and neither context_length, batch_size nor vocab_size"
                )
