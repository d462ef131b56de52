"""A backward pass on a device whose nodes autograd runs on a thread of its own, as it does for CUDA; no GPU needed.

    python -m tests.kernel_tables.marks.other_device

PyTorch lets Python stand for a device, of which two operations are enough here. It is one for the whole process, hence
this program. Prints as JSON what was `opened`: [on the calling thread?, path or "/" where it was closed] in order; and
whether closing parts on the thread of a device imported SymPy, which takes long.
"""

import json
import sys
import threading

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from kernel_tables.marks import Emitter, Marker, follow_backward
from kernel_tables.marks.backward import run_on_thread_of

_setup_privateuseone_for_python_backend("made_up")


class OnDevice(torch.Tensor):
    """A tensor of the made-up device, with its values in memory."""

    @staticmethod
    def __new__(cls, values):
        made = torch._C._acc.create_empty_tensor(values.shape, values.dtype)
        made.__class__ = OnDevice
        return made

    def __init__(self, values):
        self.values = values

    __torch_function__ = torch._C._disabled_torch_function_impl


torch.library.impl("aten::neg", "privateuseone")(lambda x: OnDevice(-x.values))
torch.library.impl("aten::detach", "privateuseone")(lambda x: OnDevice(x.values))
torch.library.impl("aten::view", "privateuseone")(lambda x, size: OnDevice(x.values.view(size)))
torch.library.impl("aten::empty.memory_format", "privateuseone")(lambda size, **options: OnDevice(torch.empty(size)))


class TwoOutputs(torch.autograd.Function):
    """The negative twice; a compiled model that returns logits and loss is such a node."""

    @staticmethod
    def forward(context, x):
        context.set_materialize_grads(False)  # so the gradient of what is not used is None
        return torch.neg(x), torch.neg(x)

    @staticmethod
    def backward(context, unused, gradient):
        return torch.neg(gradient)


def main() -> None:
    opened, caller = [], threading.get_ident()
    marker = Marker(
        Emitter(
            lambda name: opened.append((threading.get_ident() == caller, name)),
            lambda: opened.append((threading.get_ident() == caller, "/")),
        )
    )
    run_on_thread_of(torch.device("cpu"), lambda: None)
    has_sympy = "sympy" in sys.modules
    follow_backward(marker)
    for _ in range(2):
        x = OnDevice(torch.ones(3)).requires_grad_(True)
        with marker.part("first"):
            _, y = TwoOutputs.apply(x)
        with marker.part("second"):
            _, y = TwoOutputs.apply(y)
        with marker.range("backward"):
            y.backward(OnDevice(torch.ones(3)))
    print(json.dumps({"opened": opened, "has_sympy": has_sympy}))


if __name__ == "__main__":
    main()
