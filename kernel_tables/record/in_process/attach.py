"""Starts a recorder in this process once PyTorch has been imported."""

import sys
from pathlib import Path
from types import ModuleType, TracebackType

from kernel_recorder.in_process.handover import ENDING_FILE, Notes, one_line_error, read_settings
from range_marks.imports import when_imported


def attach_to_this_process(handover: str) -> None:
    """Starts a recorder with the settings in the folder, as soon as PyTorch is imported."""
    folder = Path(handover)
    settings, notes = read_settings(folder), Notes(folder)
    notes.add("python")
    if settings.quiet_end:
        _hide_interrupt(folder / ENDING_FILE)

    def attach(_: ModuleType) -> None:
        from kernel_recorder.in_process.assembly import watch_for_window

        notes.add("torch")
        try:
            watch_for_window(settings, notes)
        except Exception as error:  # the program goes on without a recorder, and the command prints why
            notes.add("refused", reason=one_line_error(error))

    when_imported("torch", attach)


def _hide_interrupt(ending_file: Path) -> None:
    """Hides the traceback of the Ctrl-C with which the command ends the program."""
    original = sys.excepthook

    def report(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if not (issubclass(kind, KeyboardInterrupt) and ending_file.exists()):
            original(kind, error, traceback)

    sys.excepthook = report
