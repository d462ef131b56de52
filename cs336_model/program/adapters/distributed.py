"""A student's DDP, FSDP and sharded optimizer in a run.

The adapters wrap the model, end the reduction of gradients after the backward pass, and make a sharded optimizer from
this project's AdamW with its default settings.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from cs336_model.program.adapters.checking import calling
from cs336_model.program.adapters.names import NEEDED
from cs336_model.program.parallel.reduction import NoReduction
from cs336_model.program.parallel.sharding import ADAMW_SETTINGS, GroupedAdamW
from cs336_model.program.targets import find_object
from cs336_model.program.variants.precision import BY_AUTOCAST
from cs336_model.program.variants.values import OWN_FSDP, OWN_SHARDED


class AdaptedReduction(NoReduction):
    """A student's DDP or FSDP."""

    def __init__(self, parallel: str, adapters: Mapping[str, str], precision: str) -> None:
        self.parallel = parallel
        wrap_name, finish_name, *_ = NEEDED["parallel"][parallel]
        with calling(parallel):  # turns exceptions into Failed
            self._wrap, self._finish = find_object(adapters[wrap_name]), find_object(adapters[finish_name])
        # the adapter of FSDP also takes the type in which it gathers parameters; None without autocast
        self._arguments = (BY_AUTOCAST.get(precision),) if parallel == OWN_FSDP else ()

    def wrap(self, model: nn.Module) -> nn.Module:
        """The student's wrapper of the model, which a step calls."""
        with calling(self.parallel):
            self.model = self._wrap(model, *self._arguments)
        return self.model

    def finish(self, optimizer: Any = None) -> None:
        with calling(self.parallel):
            self._finish(self.model, optimizer)


def adapted_optimizer(
    parameters: Iterable[nn.Parameter], adapters: Mapping[str, str], settings: Mapping[str, Any] = ADAMW_SETTINGS
) -> torch.optim.Optimizer:
    """A student's sharded optimizer around this project's AdamW."""
    (name,) = NEEDED["optimizer"][OWN_SHARDED]
    with calling(OWN_SHARDED):
        return find_object(adapters[name])(parameters, GroupedAdamW, **settings)
