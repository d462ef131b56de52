"""What NVTX payloads hold, as `nsys export --include-blobs=true` writes them into `binaryData`: Python stacks that nsys
sampled, and the bytes and communicators of NCCL's calls.

A blob begins with four numbers of 8 bytes: its domain, its layout (nsys's schemaId), the size of its data, and where
these begin. The data of a stack are, by NVTX_PAYLOAD_SCHEMA_ENTRIES, the thread's number, its state, the number of
frames, and for each frame, innermost first, the string ids of function and file, and the line. Where NCCL's calls have
their fields, that table says, under names of NCCL's src/include/nvtx_payload_schemas.h (seen with NCCL 2.28).
"""

import html
import re
import struct
from collections.abc import Iterable

PYTHON_DOMAIN, NCCL_DOMAIN = "Python Periodic Sampling", "NCCL"
NCCL_FIELDS = ("Message size [bytes]", "NCCL communicator ID")
MODULE = re.compile(r"<[\w .:-]{1,200}>|[\w-]+(?:\.[\w-]+)*")
Layouts = dict[tuple[int, int], dict[str, int]]  # by (domain, layout): the offsets of NCCL_FIELDS in the data


def payload_of(blob: object) -> tuple[int, int, bytes] | None:
    """The domain, the layout and the data in a value of `binaryData`; None if it is no payload, or incomplete."""
    if not isinstance(blob, bytes) or len(blob) < 32:
        return None
    domain, layout, size, begin = struct.unpack_from("<QQQQ", blob)
    return (domain, layout, blob[32:]) if begin == 32 and len(blob) == 32 + size else None


def frames_of(blob: object) -> tuple[tuple[int, int, int], ...] | None:
    """The frames of a stack, innermost first: string ids of function and file, and the line; None if it is none."""
    _, _, data = payload_of(blob) or (0, 0, b"")
    if len(data) < 16:
        return None
    _, state, count = struct.unpack_from("<QII", data)
    if len(data) != 16 + 24 * count or state >= 16:  # 1 is running, 2 blocked, 3 not to be interrupted
        return None
    return tuple(struct.iter_unpack("<QQQ", data[16:]))


def function_name(text: str) -> str | None:
    """The name of a function as in Python; None if it is not a function's name."""
    name = html.unescape(text)  # nsys writes &lt;module&gt;
    return name if re.fullmatch(r"[\w<>.]{1,200}", name) else None


def module_name(path: str) -> str | None:
    """The module of a file, such as torch.nn.modules.linear or <string>; None if it is not a Python file. Of a file
    that is not installed it is only its own name, which shows no folder of a user."""
    parts = html.unescape(path).replace("\\", "/").split("/")
    installed = [place + 1 for place, part in enumerate(parts) if part in ("site-packages", "dist-packages")]
    name = ".".join(parts[[-1, *installed][-1] :]).removesuffix(".py")
    return name if MODULE.fullmatch(name) and (path.endswith(".py") or name.startswith("<")) else None


def frame_name(function: str | None, file: str | None) -> str:
    """A frame in words, `forward (torch.nn.modules.linear)`, without the module if it is unknown; "(unknown)" without a
    function. In a publishable copy, `file` is the module already."""
    name, module = function_name(function or ""), module_name(file or "") or file or ""
    if not name:
        return "(unknown)"
    return f"{name} ({module})" if MODULE.fullmatch(module) else name


def layouts_in(entries: Iterable[tuple]) -> Layouts:
    """The layouts in rows (domainId, schemaId, name, type, offset) of NVTX_PAYLOAD_SCHEMA_ENTRIES. A row does not name
    its process, so a layout that differs between processes is left out."""
    offsets: Layouts = {}
    rejected = set()
    for domain, layout, name, entry_type, offset in entries:
        if name in NCCL_FIELDS and entry_type in (18, 22):  # uint64, size_t
            offset = 0 if offset is None else offset
            first = offsets.setdefault((domain, layout), {}).setdefault(name, offset)
            if first != offset or not isinstance(offset, int) or not 0 <= offset < 1 << 16:
                rejected.add((domain, layout))
    return {key: fields for key, fields in offsets.items() if key not in rejected}


def payload_fields(blob: object, layouts: Layouts) -> dict[str, int]:
    """Those of NCCL_FIELDS that the payload in a value of `binaryData` contains."""
    domain, layout, data = payload_of(blob) or (0, 0, b"")
    offsets = layouts.get((domain, layout), {}).items()
    return {name: struct.unpack_from("<Q", data, start)[0] for name, start in offsets if start + 8 <= len(data)}
