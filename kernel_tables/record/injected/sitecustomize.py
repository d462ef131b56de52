"""Runs at the start of each Python of a recorded program, since this folder is first in its PYTHONPATH.

It removes the folder from sys.path, and runs the sitecustomize of the program's environment. The program can import
nothing more than before but the recorder and what that imports. Older Pythons have to understand this file, too.
"""

import importlib.util
import os
import sys
from importlib.machinery import PathFinder

FOLDER = os.path.dirname(os.path.abspath(__file__))


class OnlyTheRecorder:
    """Finds only the package of the recorder, in the folder from which the command runs."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        folder = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
        return PathFinder.find_spec(name, [folder]) if name == "kernel_tables" else None


def run_own_sitecustomize():
    """Runs the sitecustomize of the program's environment, if there is one."""
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


def attach(folder):
    """Starts a recorder in this process as soon as PyTorch is imported, or notes why it cannot."""
    sys.meta_path.insert(0, OnlyTheRecorder)
    from pathlib import Path

    from kernel_tables.marks import when_imported
    from kernel_tables.record import handover

    settings, notes = handover.read_settings(Path(folder)), handover.Notes(Path(folder))
    notes.add("python")

    def start(_):
        notes.add("torch")
        try:
            from kernel_tables.record.steps import watch_for_window

            watch_for_window(settings, notes)
        except Exception as error:  # the program goes on without a recorder, and the command prints why
            notes.add("refused", reason=handover.one_line_error(error))

    when_imported("torch", start)


sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != FOLDER]
try:
    HANDOVER = os.environ.get("KERNEL_TABLES_RECORDING", "")
    # else the command has ended, and a service of the program lives on
    if os.path.isdir(HANDOVER) and sys.version_info >= (3, 11):
        attach(HANDOVER)
finally:
    run_own_sitecustomize()
