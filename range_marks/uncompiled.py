"""Functions that torch.compile leaves alone: hooks that run between functions of a program, some of them compiled."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """The function. TorchDynamo runs it, and everything that it calls, as they are written."""
    return _skipped(function, with_calls=True)


def uncompiled_wrapper(function: Function) -> Function:
    """The function. TorchDynamo runs it as it is written, and treats what it calls as it would without it."""
    return _skipped(function, with_calls=False)


def _skipped(function: Function, *, with_calls: bool) -> Function:
    # torch.compiler.disable would import the compiler, which takes seconds, and break a graph that is traced through.
    dynamo = torch._C._dynamo.eval_frame
    if hasattr(dynamo, "set_code_exec_strategy"):  # in PyTorch 2.7 and newer
        skip, default = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
        strategy = dynamo._FrameExecStrategy(skip, skip if with_calls else default)
        dynamo.set_code_exec_strategy(function.__code__, strategy)
    return function
