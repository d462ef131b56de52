"""Which runs are of this package's model, whose FLOPs and memory follow from its shape. Imports no torch."""

from collections.abc import Mapping
from typing import Any

from cs336_model.arguments import given_arguments
from cs336_model.arithmetic.flops import ModelShape

OWN_CONSTRUCTOR = "cs336_model.model:TransformerLM"
SIZES = ("vocab_size", "d_model", "num_layers", "num_heads", "d_ff")


def sequences_per_gpu(dimensions: Mapping[str, Any]) -> Any:
    """Sequences of a step that one GPU gets: a batch is of all GPUs together. Numbers, or columns of a table."""
    return dimensions["batch_size"] // dimensions["gpus"]


def shape_of(program: Mapping[str, Any]) -> ModelShape | None:
    """The shape of the model that a run specification names, with the sequences that one GPU gets; None for other
    people's, whose layers are not known, and where there is no model."""
    if program.get("constructor") != OWN_CONSTRUCTOR:
        return None
    given, dimensions = given_arguments(program), program["dimensions"]
    if not all(isinstance(given.get(name), int) for name in SIZES):
        return None
    sizes = {name: given[name] for name in SIZES}
    return ModelShape(batch_size=sequences_per_gpu(dimensions), context_length=dimensions["context_length"], **sizes)
