"""The remedies that `kernel-tables try` applies in a program that it runs, without a change of its code.

Nothing is changed that the program set itself. A value equal to PyTorch's default counts as not set, since libraries
pass defaults on. What fails here is noted, for the command to print, and not raised in the program.
"""

import gc
import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, IterableDataset

from kernel_tables.marks.marker import is_in_backward
from kernel_tables.record.handover import Notes, one_line_error
from kernel_tables.record.profilers import with_callbacks
from kernel_tables.record.recorder import count_compiled
from kernel_tables.record.timer import Call


class Remedies:
    """Applies the remedies of these names, each by the method with its name, which keeps the line to write into the
    program, or the reason why it is not applied. `check` notes them."""

    FOR_MODELS = ("channels_last", "gc_freeze", "compile", "graphs", "bf16")  # in this order, by `improve`

    def __init__(self, names: Sequence[str], notes: Notes) -> None:
        self._notes = notes
        self._found: dict[str, dict[str, list[str]]] = {name: {"lines": [], "reasons": []} for name in names}
        self._called = set[str]()  # of the functions watched below, by the program itself
        self._fused, self._restrided = WeakSet[torch.optim.Optimizer](), WeakSet[torch.optim.Optimizer]()
        self._freeze = gc.freeze
        if "gc_freeze" in names:
            gc.freeze = with_callbacks(gc.freeze, before=lambda *_: self._called.add("freeze"))
        if "bf16" in names:
            torch.autocast.__init__ = self._autocast_init(torch.autocast.__init__)
        for name in names:
            if name not in self.FOR_MODELS:
                self._try(name, getattr(self, name))

    def improve(self, model: nn.Module, call: Call) -> Call:
        """Applies those for a model, once it was called, and returns what its calls shall run instead of `call`."""
        for name in self.FOR_MODELS:
            if name in self._found:
                call = self._try(name, partial(getattr(self, name), model, call)) or call
        return call

    def tf32(self) -> None:
        """Products of fp32 use TF32, until the program says otherwise."""
        torch.set_float32_matmul_precision("high")

    def check(self) -> None:
        """Once the window is over: notes what was applied and still is, and why the rest is not."""
        for name in {"compile", "graphs"} & {*self._found}:
            if count_compiled() == 0:
                self._lose(name, "torch.compile compiled nothing of the model")
        if "tf32" in self._found and torch.cuda.is_available():
            if torch.get_float32_matmul_precision() == "high":
                self._keep("tf32", line='torch.set_float32_matmul_precision("high")')
            else:
                self._keep("tf32", reason="the program sets the precision of products itself")
        if not all(group["fused"] for one in self._fused for group in one.param_groups):
            self._lose("fused", "the program sets it back, as load_state_dict does with a state from before")
        for name, found in self._found.items():
            self._notes.add("remedy", name=name, **found)

    def fused(self) -> None:
        """Optimizers update all parameters in one kernel, if the program does not say how, and they can."""
        for kind in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad):
            kind.__init__ = self._fused_init(kind, kind.__init__)

    def _fused_init(self, kind: type, original: Callable[..., None]) -> Callable[..., None]:
        def listed(params: Any) -> Any:
            return params if isinstance(params, torch.Tensor) else [*params]

        @wraps(original)
        def init(optimizer: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            # a subclass passes on what it sets; PyTorch refuses a tensor
            if type(optimizer) is not kind or isinstance(params, torch.Tensor):
                return original(optimizer, params, *args, **kwargs)
            given = [f"{name}={kwargs[name]}" for name in ("fused", "foreach") if kwargs.get(name) is not None]
            if given:
                self._keep("fused", reason=f"the program passes {given[0]} itself")
                return original(optimizer, params, *args, **kwargs)
            # for two tries, whatever is a generator
            params = [one | {"params": listed(one["params"])} if isinstance(one, dict) else one for one in params]
            copies = [{**one} if isinstance(one, dict) else one for one in params]
            try:
                original(optimizer, copies, *args, **kwargs | {"fused": True})
                if any(one.is_complex() for group in optimizer.param_groups for one in group["params"]):
                    raise ValueError("it has complex parameters")  # else the first step does
            except (RuntimeError, ValueError) as error:
                self._keep("fused", reason=one_line_error(error))
                return original(optimizer, params, *args, **kwargs)
            self._fused.add(optimizer)
            self._keep("fused", line=f"{kind.__name__}(..., fused=True)")

        return init

    def workers(self) -> None:
        """DataLoaders read in other processes, up to four, and into pinned memory on a host with a GPU."""
        original, signature = DataLoader.__init__, inspect.signature(DataLoader.__init__)

        @wraps(original)
        def init(*args: Any, **kwargs: Any) -> None:
            call = signature.bind(*args, **kwargs)
            if isinstance(call.arguments["dataset"], IterableDataset):
                self._keep("workers", reason="each worker of an IterableDataset would give all samples again")
                return original(*args, **kwargs)
            count, has_gpu = min(4, len(os.sched_getaffinity(0))), torch.cuda.is_available()
            values = {"num_workers": count, "pin_memory": has_gpu, "persistent_workers": True}
            added = {name: value for name, value in values.items() if value and not call.arguments.get(name)}
            if added:
                given = ", ".join(f"{name}={value}" for name, value in added.items())
                self._keep("workers", line=f"DataLoader(..., {given})")
            elif not self._found["workers"]["lines"]:  # else they may be ours, as accelerate copies a DataLoader
                self._keep("workers", reason="the program sets workers and pinned memory itself")
            call.arguments.update(added)
            return original(*call.args, **call.kwargs)

        DataLoader.__init__ = init

    def channels_last(self, model: nn.Module, call: Call) -> None:
        """Convolutions get channels last, and cuDNN measures which algorithm is the fastest."""
        weights = [module.weight for module in model.modules() if isinstance(module, nn.Conv2d)]
        is_last = [one.is_contiguous(memory_format=torch.channels_last) > one.is_contiguous() for one in weights]
        if any(is_last) or (torch.backends.cudnn.benchmark and not self._found["channels_last"]["lines"]):
            self._keep("channels_last", reason="the program sets the memory format, or cuDNN's benchmark mode, itself")
        elif weights:
            model.to(memory_format=torch.channels_last)
            torch.backends.cudnn.benchmark = True
            register_optimizer_step_pre_hook(self._restride)
            line = "model.to(memory_format=torch.channels_last); torch.backends.cudnn.benchmark = True"
            self._keep("channels_last", line=line)

    def _restride(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Gives what an optimizer keeps of each parameter the strides that this has now, as if it had had them before
        the first step: fused kernels take both for equal, and foreach is slower if they differ."""
        if optimizer in self._restrided:
            return
        self._restrided.add(optimizer)
        for parameter, state in optimizer.state.items():
            kept = {name: one for name, one in state.items() if getattr(one, "shape", None) == parameter.shape}
            for name, value in kept.items():
                state[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
            if parameter.grad is not None:
                parameter.grad = torch.empty_like(parameter).copy_(parameter.grad)

    def gc_freeze(self, model: nn.Module, call: Call) -> None:
        """What exists now is no longer looked through for garbage (gc.freeze)."""
        if self._found["gc_freeze"]["lines"]:
            return
        if not gc.isenabled() or "freeze" in self._called:
            self._keep("gc_freeze", reason="the program controls garbage collection itself")
        else:
            gc.collect()
            self._freeze()
            self._keep("gc_freeze", line="gc.collect(); gc.freeze()  # before the first step")

    def compile(self, model: nn.Module, call: Call, name: str = "compile", **options: Any) -> Call | None:
        """The function that a call of the model runs, compiled as by torch.compile(model)."""
        if call != model._call_impl or (count_compiled() and not self._found[name]["lines"]):
            self._keep(name, reason="the program compiles itself")
            return None

        def run(*args: Any, **kwargs: Any) -> Any:  # TorchDynamo skips a first frame that is of torch.nn
            return call(*args, **kwargs)

        given = "".join(f', {key}="{value}"' for key, value in options.items())
        self._keep(name, line=f"model = torch.compile(model{given})  # {type(model).__name__}")
        return torch.compile(run, **options)

    def graphs(self, model: nn.Module, call: Call) -> Call | None:
        """The same, replayed as CUDA graphs; None on a CPU."""
        is_on_gpu = next(model.parameters()).device.type == "cuda"
        return self.compile(model, call, "graphs", mode="reduce-overhead") if is_on_gpu else None

    def bf16(self, model: nn.Module, call: Call) -> Call | None:
        """The call under autocast to bf16, with its outputs in fp32."""
        device, types = next(model.parameters()).device.type, {one.dtype for one in model.parameters()}
        is_set = "autocast" in self._called and not self._found["bf16"]["lines"]  # by which we call it
        if is_set or torch.is_autocast_enabled(device) or types & {torch.float16, torch.bfloat16}:
            self._keep("bf16", reason="the program sets the precision itself")
            return None

        def in_fp32(leaf: Any) -> Any:  # as a loss inside the block, which autocast computes in fp32
            return leaf.float() if isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bfloat16 else leaf

        @wraps(call)
        def in_bf16(*args: Any, **kwargs: Any) -> Any:
            with torch.autocast(device, torch.bfloat16):
                output = call(*args, **kwargs)
            return tree_map(in_fp32, output)

        self._keep("bf16", line=f'with torch.autocast("{device}", torch.bfloat16): ...  # forward pass and loss')
        return in_bf16

    def _autocast_init(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def init(*args: Any, **kwargs: Any) -> None:
            if kwargs.get("enabled", True) and not is_in_backward():  # where checkpoints repeat what was set before
                self._called.add("autocast")
            return original(*args, **kwargs)

        return init

    def _try(self, name: str, apply: Callable[[], Call | None]) -> Call | None:
        try:
            return apply()
        except Exception as error:
            self._keep(name, reason=one_line_error(error))
            return None

    def _keep(self, name: str, line: str = "", reason: str = "") -> None:
        for kind, text in (("lines", line), ("reasons", reason)):
            if text and text not in self._found[name][kind]:
                self._found[name][kind].append(text)

    def _lose(self, name: str, reason: str) -> None:
        """What was applied is no longer so."""
        if self._found[name]["lines"]:
            self._found[name] = {"lines": [], "reasons": [reason]}
