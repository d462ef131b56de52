"""The types of a model's numbers in its first step: parameters, outputs, gradients, logits and loss."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_iter

from cs336_model.program.outputs import Output
from cs336_model.program.steps import Subject
from cs336_model.program.variants.compilation import is_compiled

LOGITS, LOSS = "(logits)", "(loss)"
KINDS = ("parameters", "output", "gradients")


class FirstStepDtypes:
    """Notes the types in the first step of a subject, which must not have begun. No row before that step is done, nor
    of a compiled model, which calls no modules."""

    def __init__(self, subject: Subject) -> None:
        self._dtypes: dict[str, dict[str, set[str]]] = {}
        self._modules: dict[str, set[str]] = {}
        if is_compiled(subject.spec):
            return
        named = [(name, module) for name, module in subject.model.named_modules() if name]
        self._hooks = [module.register_forward_hook(self._hook(name)) for name, module in named]
        subject.after_first_step = self._finish

    def rows(self) -> list[dict[str, Any]]:
        """One row per module, those of a list together ("blocks.*.attention"): `modules`, their number, and the types
        of each kind; then logits and loss, as outputs."""
        return [
            {"module": name, "modules": len(self._modules[name])}
            | {kind: ", ".join(sorted(dtypes.get(kind, ()))) for kind in KINDS}
            for name, dtypes in self._dtypes.items()
        ]

    def _hook(self, name: str):
        return lambda module, arguments, output: self._note("output", name, tree_iter(output))

    def _note(self, kind: str, name: str, values: Iterable[Any]) -> None:
        general = ".".join("*" if part.isdigit() else part for part in name.split("."))
        self._modules.setdefault(general, set()).add(name)
        noted = self._dtypes.setdefault(general, {}).setdefault(kind, set())
        noted |= {str(value.dtype).removeprefix("torch.") for value in values if isinstance(value, Tensor)}

    def _finish(self, subject: Subject, output: Output) -> None:
        for hook in self._hooks:
            hook.remove()
        for name, module in subject.model.named_modules():
            self._note_parameters(name, module)
        self._note("output", LOGITS, [output.logits])
        if subject.losses:
            self._note("output", LOSS, subject.losses[:1])

    def _note_parameters(self, name: str, module: nn.Module) -> None:
        parameters = list(module.parameters(recurse=False))
        if parameters:
            self._note("parameters", name or "(model)", parameters)
            self._note("gradients", name or "(model)", [one.grad for one in parameters])
