"""The arguments of a model's constructor: its parameter names, with values by the names of a grid. Imports no torch.

A text "$name" means the run's value of that name: one of its dimensions (context_length, batch_size), vocab_size,
or a size of its model. Other values are passed unchanged.
"""

from collections.abc import Mapping
from typing import Any

MARK = "$"
SIZES = ("d_model", "num_layers", "num_heads", "d_ff", "rope_theta")  # of this project's model
# the arguments of this project's model, for a grid that declares none
PROJECT_ARGUMENTS = {name: f"{MARK}{name}" for name in ("vocab_size", "context_length", *SIZES)}


def run_value_names(arguments: Mapping[str, Any]) -> dict[str, str]:
    """By argument, the name after "$", for arguments that name a value of the run."""
    texts = {argument: value for argument, value in arguments.items() if isinstance(value, str)}
    return {argument: text.removeprefix(MARK) for argument, text in texts.items() if text.startswith(MARK)}


def values_by_name(program: Mapping[str, Any]) -> dict[str, Any]:
    """The values in a run specification `program` that arguments may name."""
    return {**program["dimensions"], "vocab_size": program["vocab_size"], **program["sizes"]}


def constructor_arguments(program: Mapping[str, Any]) -> dict[str, Any]:
    """The constructor's arguments in a run specification `program`, with the run's values in place of their names.
    Raises ValueError with the first unknown name."""
    names, values = run_value_names(program["arguments"]), values_by_name(program)
    for argument, name in names.items():
        if name not in values:
            raise ValueError(f"argument {argument}: {MARK}{name} is not one of {', '.join(values)}")
    return {**program["arguments"], **{argument: values[name] for argument, name in names.items()}}
