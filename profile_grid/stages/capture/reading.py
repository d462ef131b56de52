"""Tables from a capture that may turn out to be unreadable or incomplete."""

from collections.abc import Callable, Sequence
from pathlib import Path

from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from profile_grid.results.results import INCOMPLETE
from profile_grid.results.run_tables import RunTables, tables_status


def tables_of_capture(sqlite: Path, extra_rules: Sequence[dict], tables_of: Callable[[Trace], RunTables]) -> RunTables:
    """What `tables_of` returns for the capture in a file. If that, or reading the file, raises TraceError: no tables,
    and the error as the reason. `extra_rules` are custom kernel classes."""
    try:
        with Trace(sqlite, extra_rules) as trace:
            return tables_of(trace)
    except TraceError as error:
        return RunTables(tables_status(INCOMPLETE, str(error)), {})
