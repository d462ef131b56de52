"""Reading an SQLite export of Nsight Systems (2022.4 to 2026), gzipped or not.

Tables exist only if they have rows, and columns come and go with nsys's versions. Large tables are read page by page
(pages.py), two at once; meanwhile SQLite checks the pages of the file. A column that the file declares NOT NULL and that
holds NULL, or no integers, means damage.
"""

import contextlib
import gzip
import re
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from kernel_tables.capture import (
    KINDS,
    NONE,
    THREAD_BITS,
    UNNAMED,
    Activities,
    Calls,
    Capture,
    CaptureError,
    Nodes,
    Ranges,
    blocks,
    distinct,
    numbered,
    range_name,
)  # fmt: skip
from kernel_tables.pages import Damaged, Pages, Unusual

KERNEL, MEMCPY, MEMSET, GRAPH = TABLES = (  # in the order of KINDS
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)  # fmt: skip
RUNTIME, NVTX, GRAPH_NODES, STRINGS = (
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "CUDA_GRAPH_NODE_EVENTS",
    "StringIds",
)
OVERHEAD = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")
LABELS = {KERNEL: ("demangledName", "shortName"), MEMCPY: ("copyKind",), GRAPH: ("graphId", "graphExecId")}
PUSHED, RANGE_TYPES, DOMAIN_TYPE = 59, (59, 60), 75  # of NVTX events: pushed; pushed or started; created domain
COPY_KINDS = (  # of exports without ENUM_CUDA_MEMCPY_OPER
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer",
)  # fmt: skip
BATCH_ROWS = 16384
NEVER = 1 << 62  # no clock shows such a time, in nanoseconds


def read(path: Path) -> Capture:
    """The capture in an export. Raises CaptureError if the file is none, is damaged, or contradicts itself."""
    with _unpacked(path) as file:
        export = _Export(path, file)
        with ThreadPoolExecutor(3) as pool:
            pages = pool.submit(export.check_pages)
            kernels = pool.submit(export.activities)
            host = pool.submit(lambda: (export.ranges(), export.calls()))
            pages.result()
            (ranges, calls), activities = host.result(), kernels.result()
        if calls.launches_nothing(activities):  # then a check needs more of the calls
            export.add_details(calls)
        return Capture(
            path, activities, calls, ranges, export.nodes(), export.overhead(), export.messages(), export.facts
        )


@contextlib.contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """The path of an SQLite file, unpacked if it is gzipped."""
    with tempfile.TemporaryDirectory(prefix="kt_") as folder, path.open("rb") as file:
        if file.read(2) != b"\x1f\x8b":
            yield path
            return
        target = Path(folder, "export.sqlite")
        try:
            with gzip.open(path) as packed, target.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise CaptureError(f"{path}: cannot be unpacked ({error}): copy it again") from error
        yield target


class _Column:
    """Integers in order of arrival: no memory while all are equal, 32 bits while they fit, else 64."""

    def __init__(self, expected: int):
        self.expected, self.length, self.values, self.constant = max(expected, BATCH_ROWS), 0, None, None

    def append(self, values: np.ndarray) -> None:
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        if self.length == 0:
            self.constant = low
        if self.values is None and not low == high == self.constant:
            self.values = np.empty(self.expected, np.int32 if abs(self.constant) < 1 << 31 else np.int64)
            self.values[: self.length] = self.constant
        end = self.length + len(values)
        if self.values is not None:
            if self.values.dtype == np.int32 and (low < -(1 << 31) or high >= 1 << 31):
                self._move(len(self.values), np.int64)
            if end > len(self.values):
                self._move(2 * end, self.values.dtype)
            self.values[self.length : end] = values
        self.length = end

    def _move(self, size: int, dtype) -> None:
        before, self.values = self.values, np.empty(size, dtype)
        self.values[: self.length] = before[: self.length]

    def result(self) -> np.ndarray:
        if self.values is None:
            return np.broadcast_to(np.int64(0 if self.constant is None else self.constant), self.length)
        return self.values[: self.length]


class _Texts:
    """The index of each distinct name of a range."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {"": 0}
        self._of_raw: dict[bytes, int] = {b"": 0}

    def add(self, raw: list[bytes]) -> np.ndarray:
        known = self._of_raw
        for text in set(raw) - known.keys():
            name = range_name(text.decode("utf-8", "replace"))
            known[text] = self.index.setdefault(name, len(self.index))
        return np.array([known[text] for text in raw], np.int32)


class _Export:
    """An open SQLite file of nsys. `path` is the user's name for it, in messages."""

    def __init__(self, path: Path, file: Path):
        self.path, self.file = path, file
        header = file.open("rb").read(100)
        if not header.startswith(b"SQLite format 3\0"):
            raise CaptureError(_not_sqlite(path, header))
        page = int.from_bytes(header[16:18], "big")
        stated = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
        if header[24:28] == header[92:96] and stated > file.stat().st_size:
            raise CaptureError(f"{path}: cut off, {file.stat().st_size} of {stated} bytes: copy or export it again")
        rows = self.rows(
            'SELECT m.name, c.name, c."notnull" FROM sqlite_master m JOIN pragma_table_info(m.name) c'
            " WHERE m.type = 'table' AND m.rootpage > 0"
        )
        self.columns: dict[str, dict[str, bool]] = {}  # by table: its columns, and whether each is NOT NULL
        for table, column, required in rows:
            self.columns.setdefault(table, {})[column] = bool(required)
        if not any(table in self.columns for table in ("META_DATA_EXPORT", "EXPORT_META_DATA", KERNEL, RUNTIME, NVTX)):
            versioned = [name for name in self.columns if re.fullmatch(rf"({KERNEL}|{NVTX})_V\d+", name)]
            hint = f"it has {versioned[0]}, of a newer nsys" if versioned else "none of nsys's tables is in it"
            raise CaptureError(f"{path}: SQLite, but {hint}: give an export of `nsys export --type sqlite`")
        self.facts = self._facts()
        self.last = self.facts.get("stop", NEVER)

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and self.columns[table].keys() >= set(columns)

    def rows(self, sql: str, *values) -> list[tuple]:
        """The rows of a small table."""
        try:
            uri = f"{self.file.resolve().as_uri()}?mode=ro&immutable=1"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
                return connection.execute(sql, values).fetchmany(1_000_000)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self.damaged(str(error)) from error

    def damaged(self, reason: str) -> CaptureError:
        reason = " ".join(reason.replace("*** in database main ***", "").split())[:200]
        return CaptureError(f"{self.path}: damaged ({reason}): copy or export it again")

    def check_pages(self) -> None:
        """Raises CaptureError if a page is broken, lost, or in two tables. SQLite's check of the rows, which follows
        that of the pages and takes ten times as long, is interrupted: rows are checked by reading them."""
        try:
            uri = f"{self.file.resolve().as_uri()}?mode=ro&immutable=1"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                (pages,) = connection.execute("PRAGMA page_count").fetchone()
                connection.set_progress_handler(lambda: 1, 10 * pages + 1000)
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if verdict != "ok":
                    raise self.damaged(verdict)
        except sqlite3.Error as error:
            if "interrupted" not in str(error):
                raise self.damaged(str(error)) from error

    def batches(
        self, table: str, columns: list[str], text: str | None
    ) -> Iterator[tuple[dict[str, tuple], list[bytes]]]:
        """Some rows of a large table at a time: by column, integers and the mask of NULLs; and texts."""
        names = list(self.columns[table])
        if all(column in names for column in columns):
            root = self.rows("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", table)[0][0]
            pages, has_begun = Pages(self.file), False
            try:
                numbers = [names.index(column) for column in columns]
                for found, texts in pages.read(root, numbers, names.index(text) if text else None):
                    has_begun = True
                    yield {column: found[number] for column, number in zip(columns, numbers)}, texts
                return
            except Damaged as error:
                raise self.damaged(f"{table}: {error}") from error
            except Unusual:
                if has_begun:
                    raise self.damaged(f"{table} is stored in a way that nsys does not use") from None
            finally:
                pages.close()
        quoted = ", ".join(f'"{column}"' for column in (*columns, *([text] if text else [])))
        rows = self.rows(f"SELECT {quoted} FROM {table}")
        values = list(zip(*rows)) if rows else [()] * (len(columns) + 1)
        found = {}
        for column, cells in zip(columns, values):
            if not all(cell is None or isinstance(cell, int) for cell in cells):
                raise self.damaged(f"{column} of {table} holds other than integers")
            is_null = np.array([cell is None for cell in cells], bool)
            found[column] = np.array([cell or 0 for cell in cells], np.int64), is_null if is_null.any() else None
        yield found, [str(cell or "").encode() for cell in values[-1]] if text else []

    def read(
        self, table: str, columns: dict[str, str | tuple[str, ...]], texts: _Texts | None = None
    ) -> dict[str, np.ndarray]:
        """Integer arrays by name; `columns` gives the column of each, or candidates for it. NULL, and a column that the
        table lacks, become NONE. With `texts`, "text" is the index of each row's text in it."""
        known, chosen = self.columns.get(table, {}), {}
        for name, candidates in columns.items():
            candidates = (candidates,) if isinstance(candidates, str) else candidates
            chosen[name] = next((candidate for candidate in candidates if candidate in known), None)
        expected = (
            self.rows(f"SELECT (SELECT max(rowid) FROM {table}) - (SELECT min(rowid) FROM {table})")[0][0]
            if known
            else 0
        )
        expected = (expected or 0) + 1  # each of the two is a look-up; together they would read all rows
        arrays = {name: _Column(min(expected, self.file.stat().st_size // 8)) for name in columns}
        codes, read = [np.empty(0, np.int64)], list(dict.fromkeys(column for column in chosen.values() if column))
        has_text = texts is not None and "text" in known
        for found, raw in self.batches(table, read, "text" if has_text else None) if known else ():
            count = len(next(iter(found.values()))[0])
            for name, column in arrays.items():
                if chosen[name] is None:
                    column.append(np.broadcast_to(np.int64(NONE), count))
                    continue
                values, is_null = found[chosen[name]]
                if is_null is not None:
                    if known[chosen[name]]:
                        raise self.damaged(f"{chosen[name]} of {table} is NULL")
                    values = np.where(is_null, NONE, values)
                column.append(values)
            codes.append(
                texts.add(raw) if has_text else np.full(count if texts else 0, texts.add([b""])[0] if texts else 0)
            )
        result = {name: column.result() for name, column in arrays.items()}
        return result | {"text": np.concatenate(codes)} if texts else result

    def require_times(self, table: str, start: np.ndarray, end: np.ndarray) -> None:
        """Raises CaptureError for times that no capture can have."""
        if not len(start):
            return
        low, high = int(min(start.min(), end.min())), int(max(start.max(), end.max()))
        backwards = sum(int(np.count_nonzero(end[block] < start[block])) for block in blocks(len(start)))
        if low < 0:
            raise CaptureError(f"{self.path}: {table} has times below zero ({low} ns): damaged, export it again")
        if high > self.last:
            raise CaptureError(f"{self.path}: {table} has a time of {high} ns, after the capture's end: damaged")
        if backwards:
            raise CaptureError(f"{self.path}: {backwards} rows of {table} end before they start: damaged")

    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """The string of each id that is used."""
        used = set(distinct(ids).tolist()) - {NONE}
        if not used or not self.has(STRINGS, "id", "value"):
            return {}
        found = {}
        for first in range(0, len(used), 500):
            part = sorted(used)[first : first + 500]
            marks = ", ".join("?" * len(part))
            found |= dict(self.rows(f"SELECT id, value FROM {STRINGS} WHERE id IN ({marks})", *part))
        return {key: str(value) for key, value in found.items() if value is not None}

    def activities(self) -> Activities:
        nodes = "graphNodeId" if self.columns.get(GRAPH_NODES) else "no graph"
        parts, names = [], []
        for kind, table in enumerate(TABLES):
            wanted = {
                "start": "start", "end": "end", "correlation": "correlationId", "process": "globalPid", "stream": ("streamId",), "device": ("deviceId",),
                "label": LABELS.get(table, ()), "node": (nodes,) if nodes in self.columns.get(table, {}) else (),
            }  # fmt: skip
            self._require(table, "start", "end", "correlationId")
            columns = self.read(table, wanted)
            self.require_times(table, columns["start"], columns["end"])
            labels, index = numbered(columns.pop("label"))
            columns["name"] = index + np.int32(len(names)) if names else index
            columns["kind"] = np.broadcast_to(np.int8(kind), len(index))
            device = columns.pop("device")
            if len(device) and (device.strides != (0,) or device[0] != 0):
                columns["stream"] = device.astype(np.int64) << 32 | columns["stream"]
            names += self._names(table, labels)
            parts.append(columns)
        parts = [part for part in parts if len(part["start"])] or parts[:1]
        one = parts[0] if len(parts) == 1 else None
        merged = one or {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
        return Activities(names=names, **merged)

    def _require(self, table: str, *columns: str) -> None:
        if table in self.columns and not self.has(table, *columns):
            missing = ", ".join(sorted(set(columns) - self.columns[table].keys()))
            raise CaptureError(f"{self.path}: {table} has no {missing}: export it with an nsys of 2022.4 or later")

    def _names(self, table: str, labels: np.ndarray) -> list[str]:
        if table == KERNEL:
            strings = self.strings(labels)
            if lost := [label for label in labels.tolist() if not strings.get(label)]:
                raise self.damaged(f"{len(lost)} of {len(labels)} names of kernels are not among its strings")
            return [strings[label] for label in labels.tolist()]
        if table == MEMCPY:
            kinds = dict(enumerate(COPY_KINDS))
            if self.has("ENUM_CUDA_MEMCPY_OPER", "id", "label", "name"):
                kinds |= dict(self.rows("SELECT id, ifnull(label, name) FROM ENUM_CUDA_MEMCPY_OPER"))
            return [f"[CUDA memcpy {kinds.get(label, f'kind {label}')}]" for label in labels.tolist()]
        return [f"[CUDA graph {label}]" if table == GRAPH else "[CUDA memset]" for label in labels.tolist()]

    def calls(self) -> Calls:
        self._require(RUNTIME, "start", "globalTid", "correlationId")
        wanted = {"start": "start", "thread": "globalTid", "correlation": "correlationId", "name": ("nameId",)}
        columns = self.read(RUNTIME, wanted)
        self.require_times(RUNTIME, columns["start"], columns["start"])
        threads, index = _few(columns.pop("thread"))
        ids, columns["name"] = _few(columns["name"])
        strings = self.strings(ids)
        names = {number: strings[key] for number, key in enumerate(ids.tolist()) if key in strings}
        return Calls(**columns, thread=index, threads=threads, names=names)

    def add_details(self, calls: Calls) -> None:
        columns = self.read(RUNTIME, {"end": ("end",), "returned": ("returnValue",)})
        calls.end, calls.failed = np.maximum(columns["end"], calls.start), columns["returned"] > 0

    def ranges(self) -> Ranges:
        self._require(NVTX, "start", "end", "globalTid", "eventType")
        texts = _Texts()
        wanted = {
            "start": "start",
            "end": "end",
            "thread": "globalTid",
            "text_id": ("textId",),
            "domain": ("domainId",),
            "type": "eventType",
        }
        columns = self.read(NVTX, wanted, texts)
        is_range = np.isin(columns["type"], RANGE_TYPES)
        columns = {name: column[is_range] for name, column in columns.items()}
        is_open = columns["end"] == NONE
        self.require_times(NVTX, columns["start"], np.where(is_open, columns["start"], columns["end"]))
        ids, index = np.unique(columns["text_id"], return_inverse=True)
        strings = self.strings(ids)
        if lost := len(set(ids.tolist()) - strings.keys() - {NONE}):
            raise self.damaged(f"{lost} names of ranges are not among its strings")
        registered = [strings.get(key, "").encode(errors="replace") for key in ids.tolist()]
        code = np.where(columns["text"] == 0, texts.add(registered)[index.reshape(-1)], columns["text"])
        used, code = np.unique(code, return_inverse=True)
        all_names = list(texts.index)
        names = [all_names[number] or UNNAMED for number in used.tolist()]
        end = np.where(is_open, self.last_time() if is_open.any() else 0, columns["end"])
        return Ranges.in_order(
            columns["start"], end, columns["thread"], code.reshape(-1).astype(np.int32), names, columns["domain"],
            columns["type"] == PUSHED,
            self._domains() if len(columns["start"]) else {}, int(is_open.sum()),
        )  # fmt: skip

    def last_time(self) -> int:
        tables = [table for table in (*TABLES, RUNTIME, NVTX) if self.has(table, "start", "end")]
        return max(self.rows(f'SELECT max(ifnull("end", start)) FROM {table}')[0][0] or 0 for table in tables)

    def _domains(self) -> dict[tuple[int, int], str]:
        if not self.has(NVTX, "domainId", "text"):
            return {}
        text = (
            "text"
            if "textId" not in self.columns[NVTX]
            else f"ifnull(text, (SELECT value FROM {STRINGS} WHERE id = textId))"
        )
        rows = self.rows(f"SELECT globalTid, domainId, {text} FROM {NVTX} WHERE eventType = {DOMAIN_TYPE}")
        return {(thread & ~THREAD_BITS, domain): str(name or "") for thread, domain, name in rows if thread is not None}

    def nodes(self) -> Nodes:
        wanted = {"time": "start", "thread": "globalTid", "node": "graphNodeId", "original": "originalGraphNodeId"}
        usable = self.has(GRAPH_NODES, *wanted.values())
        columns = self.read(GRAPH_NODES if usable else "no table", wanted)
        return Nodes(**columns)

    def overhead(self) -> tuple[np.ndarray, np.ndarray]:
        parts = [
            self.read(table, {"start": "start", "end": "end"}) for table in OVERHEAD if self.has(table, "start", "end")
        ]
        return tuple(
            np.concatenate([part[name] for part in parts] or [np.empty(0, np.int64)]) for name in ("start", "end")
        )

    def messages(self) -> list[tuple[int, str]]:
        if not self.has("DIAGNOSTIC_EVENT", "severity", "text"):
            return []
        rows = self.rows("SELECT DISTINCT severity, text FROM DIAGNOSTIC_EVENT")
        return [(level if isinstance(level, int) else 2, " ".join(str(text).split())) for level, text in rows]

    def _facts(self) -> dict[str, object]:
        facts: dict[str, object] = {}
        for table in ("META_DATA_EXPORT", "EXPORT_META_DATA"):
            if self.has(table, "name", "value"):
                facts |= {str(name): str(value) for name, value in self.rows(f"SELECT name, value FROM {table}")}
        if self.has("ANALYSIS_DETAILS", "startTime", "stopTime", "duration"):
            for start, stop, duration in self.rows("SELECT startTime, stopTime, duration FROM ANALYSIS_DETAILS"):
                numbers = all(isinstance(value, int) for value in (start, stop, duration))
                if not (numbers and start <= stop and 0 <= duration <= stop):
                    raise self.damaged("the capture's own start, end and duration are impossible")
                facts["stop"] = max(stop, facts.get("stop", 0))
        return facts


def _few(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct values, and the index of each as a small integer; for few distinct values."""
    if values.strides == (0,):
        return np.array(values[:1]), np.broadcast_to(np.int8(0), len(values))
    few = distinct(values)
    index = np.empty(len(values), np.min_scalar_type(-len(few)))
    for block in blocks(len(values)):
        index[block] = np.searchsorted(few, values[block])
    return few, index


def _not_sqlite(path: Path, header: bytes) -> str:
    if not header:
        return f"{path}: the file is empty: the export failed"
    if path.suffix == ".nsys-rep":
        return f"{path}: a report: export it with `nsys export --type sqlite {path.name}`"
    return (
        f"{path}: Perfetto's protobuf, which is not read: export JSON (trace.json.gz) instead"
        if path.suffix == ".pftrace"
        else f"{path}: neither SQLite nor JSON (it begins with {header[:8]!r}): give an export of nsys, or a trace of torch.profiler"
    )


assert len(KINDS) == len(TABLES)
