"""The command `kernel-tables`, run in this process: most tests of it need no interpreter of their own."""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from kernel_tables.cli import main


class Terminal(io.TextIOWrapper):
    """A standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def run_command(*arguments: object, environment: dict[str, str] | None = None, columns: int = 0) -> CompletedProcess:
    """The exit status of a command, and what it printed, as bytes; in a terminal of so many columns, if any."""
    out, err = (
        (Terminal if columns else io.TextIOWrapper)(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
        for _ in range(2)
    )
    environment = (environment or {}) | ({"COLUMNS": str(columns)} if columns else {})
    texts = [*map(str, arguments)]
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, environment):
        try:
            status = main(texts)
        except SystemExit as ended:
            status = ended.code
    return CompletedProcess(texts, status, out.buffer.getvalue(), err.buffer.getvalue())
