"""Names on the page: each full name once, in one list, and beside it the short name of a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_tables.kernel_names.short import short_names


class Names:
    """Full names, each once, and their numbers: a step has thousands of kernels and dozens of names.

    `taken` are the short names that sentences and figures give to their kernels.
    """

    def __init__(self, taken: Mapping[str, str] | None = None) -> None:
        self._taken = dict(taken or {})
        self._numbers: dict[str, int] = {}
        self._kernels: dict[str, None] = {}

    def number(self, name: str) -> int:
        """The position of the name in `full`."""
        return self._numbers.setdefault(name, len(self._numbers))

    def kernel(self, name: str) -> int:
        """The position in `full` of the name of a kernel, which has a short one."""
        self._kernels[name] = None
        return self.number(name)

    def as_lists(self) -> dict[str, list[str]]:
        """{"full": the names, "short": the same, but the short names of kernels}."""
        short = short_names(self._kernels, self._taken)
        return {"full": list(self._numbers), "short": [short.get(name, name) for name in self._numbers]}
