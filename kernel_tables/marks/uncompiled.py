"""Marks functions that torch.compile must not compile: hooks that run in a program, parts of which are compiled."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])


def uncompiled(function: Function) -> Function:
    """The function, marked so that TorchDynamo compiles neither it nor what it calls; before PyTorch 2.7, unmarked."""
    return _mark_skipped(function, with_calls=True)


def uncompiled_wrapper(function: Function) -> Function:
    """The function, marked so that TorchDynamo does not compile it; what it calls is compiled as usual."""
    return _mark_skipped(function, with_calls=False)


def _mark_skipped(function: Function, *, with_calls: bool) -> Function:
    # torch.compiler.disable would import the compiler, which takes seconds, and would break the graph of a caller.
    dynamo = torch._C._dynamo.eval_frame
    if hasattr(dynamo, "set_code_exec_strategy"):  # in PyTorch 2.7 and newer
        skip, default = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
        strategy = dynamo._FrameExecStrategy(skip, skip if with_calls else default)
        dynamo.set_code_exec_strategy(function.__code__, strategy)
    return function
