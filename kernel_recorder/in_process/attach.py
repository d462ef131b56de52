"""From the start of a Python to a recorder that waits for its window, once that Python has imported PyTorch."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from kernel_recorder.in_process.imports import when_imported
from kernel_recorder.in_process.notes import Notes
from kernel_recorder.in_process.settings import read_settings


def attach_to_this_process(handover: str) -> None:
    """Lets a recorder wait in this process for the window that the settings in the folder describe."""
    folder = Path(handover)
    settings, notes = read_settings(folder), Notes(folder)
    notes.add("python")

    def attach(_: ModuleType) -> None:
        from kernel_recorder.in_process.assembly import watch_for_window

        notes.add("torch")
        try:
            watch_for_window(settings, notes)
        except Exception as error:  # the program goes on without a recorder, and the command tells why
            notes.add("refused", reason=f"{type(error).__name__}: {error}".partition("\n")[0])

    when_imported("torch", attach)
