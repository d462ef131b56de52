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
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kernel_tables.reading.payloads import Payload, payload_of

DOMAIN = "Python Periodic Sampling"
STACK, FRAME = struct.Struct("<QII"), struct.Struct("<QQQ")
MAX_STRING_ID = 1 << 31
STATES = range(16)  # 1 is running, 2 blocked, 3 not to be interrupted
FUNCTION_NAME = re.compile(r"[\w<>.]{1,200}")
MODULE_NAME = re.compile(r"<[\w .:-]{1,200}>|[\w-]+(?:\.[\w-]+)*")
PACKAGES_FOLDER = re.compile(r"\A.*/(?:site|dist)-packages/", re.DOTALL)
LIBRARY_FOLDER = re.compile(r"\A.*/lib(?:64)?/python\d\.\d+/", re.DOTALL)
PACKAGE_PARENT = Path(__file__).parents[2]  # the folder from which this package is imported


class Frame(NamedTuple):
    """The string ids of the function and the file of one frame, and its line."""

    function_id: int
    file_id: int
    line: int


class PythonSample(NamedTuple):
    """One sampled stack; `frames` are names, innermost first."""

    at_ns: int
    thread: int  # global id
    frames: tuple[str, ...]


def frames_of(blob: object) -> tuple[Frame, ...] | None:
    """The frames in a value of `binaryData`, innermost first; None if its bytes are not exactly a stack."""
    _, _, data = payload_of(blob) or Payload(0, 0, b"")
    if len(data) < STACK.size:
        return None
    _, state, count = STACK.unpack_from(data)
    if len(data) != STACK.size + count * FRAME.size:
        return None
    frames = FRAME.iter_unpack(data[STACK.size :])
    return tuple(Frame(*numbers) for numbers in frames) if state in STATES else None


def distinct_frames(blobs: Iterable[object]) -> set[Frame]:
    """The frames of all stacks, unpacked one at a time: a stack takes ten times the memory of its payload."""
    return {frame for blob in blobs for frame in frames_of(blob) or ()}


def string_ids(frames: Iterable[Frame]) -> set[int]:
    """The ids of the names of functions and files in the frames, without ids that nsys never uses."""
    return {number for frame in frames for number in (frame.function_id, frame.file_id) if number < MAX_STRING_ID}


def samples_in(
    rows: Sequence[tuple[int, int, object]], strings_of: Callable[[list[int]], Mapping[int, str]]
) -> list[PythonSample]:
    """The samples in rows of time, thread and `binaryData`; `strings_of` returns the strings with these ids."""
    frames = distinct_frames(blob for _, _, blob in rows)
    strings = strings_of(sorted(string_ids(frames)))
    names = {frame: frame_name(strings.get(frame.function_id), strings.get(frame.file_id)) for frame in frames}
    return [
        PythonSample(at_ns, thread, tuple(names[frame] for frame in frames_of(blob) or ()))
        for at_ns, thread, blob in rows
    ]


def function_name(text: str) -> str | None:
    """The name of a function as in Python; None if it is not a function's name."""
    name = html.unescape(text)  # nsys writes &lt;module&gt;
    return name if FUNCTION_NAME.fullmatch(name) else None


def module_name(path: str) -> str | None:
    """The module of a file, such as torch.nn.modules.linear or <string>; None if it is not a Python file.

    To show no folder of a user, it is only the name of the file, unless that is installed, in Python's library, or in a
    package next to this one.
    """
    file = _without_folders(html.unescape(path).replace("\\", "/"))
    name = file.removesuffix(".py").replace("/", ".")
    return name if MODULE_NAME.fullmatch(name) and (file.endswith(".py") or file.startswith("<")) else None


def _without_folders(file: str) -> str:
    if folder := PACKAGES_FOLDER.match(file):
        return file[folder.end() :]
    # A user's folder may have the name of Python's library or of a package, so the file in it has to be known, too.
    library_file = LIBRARY_FOLDER.sub("", file, count=1)
    if library_file != file and library_file.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names:
        return library_file
    parts = tuple(file.split("/"))
    package_index = next((index for index in reversed(range(len(parts))) if parts[index] in _packages()), None)
    is_known = package_index is not None and parts[package_index:] in _files(parts[package_index])
    return "/".join(parts[package_index:] if is_known else parts[-1:])


@functools.cache
def _packages() -> frozenset[str]:
    """The packages next to kernel_tables: in its project, or in the environment in which it is installed."""
    return frozenset(path.parent.name for path in PACKAGE_PARENT.glob("*/__init__.py"))


@functools.cache
def _files(package: str) -> frozenset[tuple[str, ...]]:
    """The files of a package by the parts of their paths, from its folder on."""
    return frozenset(path.relative_to(PACKAGE_PARENT).parts for path in (PACKAGE_PARENT / package).rglob("*.py"))


def frame_name(function: str | None, file: str | None) -> str:
    """A frame in words, `forward (torch.nn.modules.linear)`, without the module if it is unknown; "(unknown)" without a
    function. In a publishable copy, `file` is the module already."""
    name, module = function_name(function or ""), module_name(file or "") or file or ""
    if not name:
        return "(unknown)"
    return f"{name} ({module})" if MODULE_NAME.fullmatch(module) else name
