"""Python stacks that nsys sampled: NVTX marks of a separate domain, whose payloads hold the frames.

By NVTX_PAYLOAD_SCHEMA_ENTRIES, a stack is the thread's number, its state, the number of frames, and for each
frame, innermost first, the string ids of function and file, and the line. A payload that does not fit this to the
byte is not a stack.
"""

import functools
import html
import re
import struct
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from kernel_tables.reading.payloads import OF_DOMAIN, data_of

DOMAIN = "Python Periodic Sampling"
STACK, FRAME = struct.Struct("<QII"), struct.Struct("<QQQ")
MOST_STRINGS = 1 << 31
STATES = range(16)  # 1 is running, 2 blocked, 3 not to be interrupted
FUNCTION = re.compile(r"[\w<>.]{1,200}")
MODULE = re.compile(r"<[\w .:-]{1,200}>|[\w-]+(?:\.[\w-]+)*")
INSTALLED = re.compile(r"\A.*/(?:site|dist)-packages/", re.DOTALL)
STANDARD = re.compile(r"\A.*/lib(?:64)?/python\d\.\d+/", re.DOTALL)
PACKAGE_PARENT = Path(__file__).parents[2]  # the folder from which this package is imported
OF_SAMPLES = "eventType = 34 AND " + OF_DOMAIN.format(table="{table}", domain=DOMAIN)


class Frame(NamedTuple):
    """The string ids of one frame, and its line."""

    function: int
    file: int
    line: int


class PythonSample(NamedTuple):
    """One sampled stack; `frames` are names, innermost first."""

    at_ns: int
    thread: int  # global id
    frames: tuple[str, ...]


def frames_of(payload: object) -> tuple[Frame, ...] | None:
    """The frames of a payload, innermost first; None if it is not a stack, to the byte."""
    _, _, data = data_of(payload) or (0, 0, b"")
    if len(data) < STACK.size:
        return None
    _, state, count = STACK.unpack_from(data)
    if len(data) != STACK.size + count * FRAME.size:
        return None
    frames = FRAME.iter_unpack(data[STACK.size :])
    return tuple(Frame(*numbers) for numbers in frames) if state in STATES else None


def distinct_frames(payloads: Iterable[object]) -> set[Frame]:
    """The frames of all payloads, unpacked one at a time: a stack takes ten times the memory of its payload."""
    return {frame for payload in payloads for frame in frames_of(payload) or ()}


def string_ids(frames: Iterable[Frame]) -> set[int]:
    """The ids of all names of the frames, without ids that nsys never uses."""
    return {number for frame in frames for number in frame[:2] if number < MOST_STRINGS}


def function_name(text: str) -> str | None:
    """The name of a function as in Python; None if it is not a function's name."""
    name = html.unescape(text)  # nsys writes &lt;module&gt;
    return name if FUNCTION.fullmatch(name) else None


def module_name(path: str) -> str | None:
    """The module of a file, such as torch.nn.modules.linear; only its last part if it is neither installed nor in
    Python's library nor in a package next to this one, so that no folder of a user is shown; None if it is not a
    Python file."""
    file = _without_folders(html.unescape(path).replace("\\", "/"))
    name = file.removesuffix(".py").replace("/", ".")
    return name if MODULE.fullmatch(name) and (file.endswith(".py") or file.startswith("<")) else None


def _without_folders(file: str) -> str:
    if installed := INSTALLED.match(file):
        return file[installed.end() :]
    # folders of these names may be a user's: the files below have to be known
    standard = STANDARD.sub("", file, count=1)
    if standard != file and standard.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names:
        return standard
    parts = tuple(file.split("/"))
    start = next((number for number in reversed(range(len(parts))) if parts[number] in _packages()), None)
    is_known = start is not None and parts[start:] in _files(parts[start])
    return "/".join(parts[start:] if is_known else parts[-1:])


@functools.cache
def _packages() -> frozenset[str]:
    """The packages next to this one: those of its project, or of the environment in which it is installed."""
    return frozenset(path.parent.name for path in PACKAGE_PARENT.glob("*/__init__.py"))


@functools.cache
def _files(package: str) -> frozenset[tuple[str, ...]]:
    """The files of a package by the parts of their paths, from its folder on."""
    return frozenset(path.relative_to(PACKAGE_PARENT).parts for path in (PACKAGE_PARENT / package).rglob("*.py"))


def frame_name(function: str | None, file: str | None) -> str:
    """A frame in words, `forward (torch.nn.modules.linear)`; the file may be named as a module already."""
    name, module = function_name(function or ""), module_name(file or "") or file or ""
    return f"{name} ({module})" if name and MODULE.fullmatch(module) else name or "(unknown)"
