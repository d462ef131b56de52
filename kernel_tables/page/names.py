"""Names on the page: each full name once, in one list, and the short names of kernels."""

from collections.abc import Mapping

from kernel_tables.kernel_names.short import short_names


class Names:
    """Full names, each once, and their numbers: a step has thousands of kernels and dozens of names.

    `reserved` are the short names of kernels in sentences and figures, by full name.
    """

    def __init__(self, reserved: Mapping[str, str] | None = None) -> None:
        self._reserved = dict(reserved or {})
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
        """{"full": the names, "short": the names, with the short names of kernels}."""
        short = short_names(self._kernels, self._reserved)
        return {"full": list(self._numbers), "short": [short.get(name, name) for name in self._numbers]}
