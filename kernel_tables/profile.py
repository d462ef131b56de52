"""A capture and what is derived from it: `kernel_tables.open(path).kernels()`."""

import os
from functools import cached_property
from pathlib import Path

from kernel_tables import attribution, check, export, tables
from kernel_tables.capture import Capture, CaptureError, Finding
from kernel_tables.tables import Table


class Profile:
    """The tables and the findings of one capture."""

    def __init__(self, capture: Capture):
        self.capture = capture
        self.attribution = attribution.attribute(capture)
        self.group = tables.grouped(capture.activities, self.attribution)

    def kernels(self) -> Table:
        """One row per range path and kernel; see tables.kernels."""
        return tables.kernels(self.capture, self.attribution, self.group)

    def ranges(self) -> Table:
        """One row per range name, inner ranges included; see tables.ranges."""
        return tables.ranges(self.attribution, self.group)

    def classes(self) -> Table:
        """One row per class of kernels; see tables.classes."""
        return tables.classes(self.capture, self.group)

    @cached_property
    def findings(self) -> list[Finding]:
        """What is wrong or odd, errors first: look at it before you trust a table."""
        return check.findings(self.capture, self.attribution)


def open(path: str | os.PathLike) -> Profile:
    """The profile of an nsys export or of a trace of torch.profiler, gzipped or not. CaptureError if it is neither."""
    path = Path(path)
    try:
        return Profile(read(path))
    except OSError as error:
        raise CaptureError(f"{path}: {error.strerror or error}") from error


def read(path: Path) -> Capture:
    with path.open("rb") as file:
        begin = file.read(4096)
    from kernel_tables import trace

    return trace.read(path) if trace.is_json(begin, path) else export.read(path)
