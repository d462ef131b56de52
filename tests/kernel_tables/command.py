"""The command `kernel-tables`, run in this process: most tests of it need no interpreter of their own."""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

from kernel_tables.__main__ import main


def run_command(*arguments: object, environment: dict[str, str] | None = None) -> CompletedProcess:
    """The exit status of a command, and what it printed, as bytes."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True) for _ in range(2))
    texts = [*map(str, arguments)]
    with redirect_stdout(out), redirect_stderr(err), patch.dict(os.environ, environment or {}):
        try:
            status = main(texts)
        except SystemExit as ended:
            status = ended.code
    return CompletedProcess(texts, status, out.buffer.getvalue(), err.buffer.getvalue())
