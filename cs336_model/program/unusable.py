"""A model that cannot be measured as it is declared: said in one line, which is all that a reader needs."""

from pathlib import Path


class UnusableModel(Exception):
    """What is wrong with the model that config.yaml names, and what to do about it; the message is one line."""


def said(error: BaseException) -> str:
    """An error in one line, with the file and line that raised it."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}{': ' if text else ''}{text}{_where(error)}"


def _where(error: BaseException) -> str:
    traceback, last = error.__traceback__, None
    while traceback is not None:
        last, traceback = traceback, traceback.tb_next
    if last is None:
        return ""
    return f" ({Path(last.tb_frame.f_code.co_filename).name}, line {last.tb_lineno})"
