"""Kernel names on the page: each full name once, in one list, and a short form that says when something is left out."""

from __future__ import annotations

import re

UNNAMED = re.compile(r"<unnamed>::|\(anonymous namespace\)::|\{anonymous\}::")
LEFT_OUT = "…"
TELLING = re.compile(r"\b\w*(?:[Ff]unctor|Ops\b|_kernel_cuda\b|_kernel_impl\b|gemm)\w*")
GENERIC = {"BinaryFunctor", "AUnaryFunctor", "BUnaryFunctor"}


class Names:
    """Full names, each once, and their numbers: a step has thousands of kernels and dozens of names."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The position of the name in `full`."""
        return self._numbers.setdefault(name, len(self._numbers))

    def as_lists(self) -> dict[str, list[str]]:
        """{"full": the names, "short": their short forms}."""
        return {"full": list(self._numbers), "short": [short_name(name) for name in self._numbers]}


def short_name(name: str) -> str:
    """The function's own name and what its arguments say it does: "elementwise_kernel<…MulFunctor…>"; "…" is left out.

    A name that has nothing to leave out stays as it is, and so does one that is no function's.
    """
    plain = UNNAMED.sub("", name).removeprefix("void ")
    own = re.split(r"[<(]", plain, maxsplit=1)[0].split("::")[-1]
    if name.startswith("aten::") or own == name or not re.search(r"\w", own):
        return name
    telling = [word for word in TELLING.findall(plain[len(own) :]) if word not in GENERIC and word != own]
    return f"{own}<{LEFT_OUT}{telling[0]}{LEFT_OUT}>" if telling else own + LEFT_OUT
