"""The recorded program as one line for the capture, without possible secrets and folders of the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

LONGEST = 300  # characters
HIDDEN = "***"
SECRET = re.compile(r"(?i)key|token|secret|passw|pwd|credential|auth|cookie|session|dsn")
# What secret values look like: keys of known services, and long texts that mix letters and digits.
SECRET_VALUE = re.compile(
    r"(?:hf_|sk-|ghp_|gho_|github_pat_|xox|AKIA|AIza|eyJ)\S{8,}|(?=\S*\d)(?=\S*[A-Za-z])[\w+/=-]{32,}"
)
ADDRESS = re.compile(r"(\w+://)[^/\s@]*@")
PATH = re.compile(r"(?:~|/|[A-Za-z]:\\)[^\s=,:]*[/\\](?=[^/\\\s])")


def program_text(arguments: Sequence[str]) -> str:
    """The command line. Values that look like secrets, or whose options do, are hidden; absolute paths are cut to their
    last name."""
    text = " ".join(_cleaned(arguments))
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _cleaned(arguments: Sequence[str]) -> Iterator[str]:
    hide_next = False
    for argument in arguments:
        name, equals, _ = argument.partition("=")
        is_option = argument.startswith("-")
        if hide_next and not is_option:
            yield HIDDEN
        elif equals and SECRET.search(name):
            yield f"{name}={HIDDEN}"
        else:
            yield _without_place(argument)
        hide_next = is_option and not equals and bool(SECRET.search(argument))


def _without_place(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if SECRET_VALUE.search(value if equals else argument):
        return f"{name}={HIDDEN}" if equals else HIDDEN
    argument = ADDRESS.sub(rf"\1{HIDDEN}@", argument)
    if "://" in argument:
        return argument
    if equals:
        return f"{name}={_last_name(value)}"
    return _last_name(argument)


def _last_name(text: str) -> str:
    """The last name of an absolute path; other texts unchanged."""
    return PurePath(text).name if PATH.match(text) else text
