"""The names of adapters, which values of dimensions need them, and what config.yaml gives. Imports no torch.

The names are those of the handout's tests/adapters.py (Stanford CS336, assignment 2).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from cs336_model.program.variants.values import OWN_PYTORCH, OWN_TRITON

# By dimension and value.
NEEDED: Mapping[str, Mapping[Any, tuple[str, ...]]] = {
    "attention": {
        OWN_PYTORCH: ("get_flashattention_autograd_function_pytorch",),
        OWN_TRITON: ("get_flashattention_autograd_function_triton",),
    },
}
ADAPTERS = tuple(name for values in NEEDED.values() for names in values.values() for name in names)


def needed_adapters(dimensions: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(dimension, value, name of an adapter that the value needs), for the values of a run."""
    for dimension, adapters in NEEDED.items():
        value = dimensions.get(dimension)
        yield from ((dimension, value, name) for name in adapters.get(value, ()))


def student_implementations(dimensions: Mapping[str, Any]) -> str:
    """The values of a run that are a student's code: "own-triton"; "" if none is."""
    return ", ".join(dict.fromkeys(value for _, value, _ in needed_adapters(dimensions)))


def adapters_of_run(declared: Mapping[str, str], dimensions: Mapping[str, Any]) -> dict[str, str]:
    """The declared adapters ("module:name" by name) that the values of a run need, without others, whose changes do not
    concern the run."""
    return {name: declared[name] for _, _, name in needed_adapters(dimensions) if name in declared}


def missing_adapter(declared: Mapping[str, str], dimensions: Mapping[str, Any]) -> str | None:
    """One line about an adapter that the run needs and that is not declared; None if all are."""
    for dimension, value, name in needed_adapters(dimensions):
        if name not in declared:
            return (
                f"{dimension} {value} needs program.adapters.{name}: name the module that has it (program: {{adapters:"
                f' "tests.adapters"}}), or the object itself as "module:name"'
            )
    return None
