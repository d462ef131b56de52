"""What a model's constructor is called with: its own names, and values by the names that a grid knows. Imports nothing.

A text "$name" stands for the value that the run has by that name: one of its dimensions (context_length, batch_size),
vocab_size, or a size of its model. Every other value is passed on as it is.
"""

from collections.abc import Mapping
from typing import Any

MARK = "$"
SIZES = ("d_model", "num_layers", "num_heads", "d_ff", "rope_theta")
OUR_ARGUMENTS = {name: f"{MARK}{name}" for name in ("vocab_size", "context_length", *SIZES)}  # where none are declared


def names_told(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The arguments whose values are the run's: by the constructor's name for each, the run's."""
    marked = {name: value for name, value in arguments.items() if isinstance(value, str) and value.startswith(MARK)}
    return {name: value.removeprefix(MARK) for name, value in marked.items()}


def values_by_name(program: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a run specification has, by the names that arguments may tell."""
    return {**program["dimensions"], "vocab_size": program["vocab_size"], **program["sizes"]}


def given_arguments(program: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a run specification with their values. ValueError names one that the run has no value for."""
    told, values = names_told(program["arguments"]), values_by_name(program)
    for argument, name in told.items():
        if name not in values:
            raise ValueError(f"{argument}: {MARK}{name} is none of {', '.join(values)}")
    return {**program["arguments"], **{argument: values[name] for argument, name in told.items()}}
