"""Reading an SQLite export of Nsight Systems (2022.4 to 2026), or what publish.write_capture made of a trace.

Tables exist only if they have rows, and columns come and go with nsys's versions. Large tables are read page by page
(pages.py), two at once; meanwhile SQLite checks the pages of the file. A column that the file declares NOT NULL and
that holds NULL, or no integers, means damage.
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
    NONE,
    THREAD_BITS,
    UNNAMED,
    Activities,
    Calls,
    Capture,
    NcclCall,
    Nodes,
    Ranges,
    Source,
    blocks,
    numbered,
    range_name,
    take,
)  # fmt: skip
from kernel_tables.errors import ImpossibleCapture, TraceError, finding, impossible
from kernel_tables.files import REPORT_SUFFIXES
from kernel_tables.pages import Damaged, Pages, Unusual
from kernel_tables.payloads import (
    NCCL_DOMAIN,
    NCCL_FIELDS,
    PYTHON_DOMAIN,
    frame_name,
    frames_of,
    layouts_in,
    payload_fields,
)  # fmt: skip

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
HOST_NODE = "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE"
OVERHEADS = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")
METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # one or the other, by nsys's version
PUSHED, STARTED, DOMAIN_TYPE = 59, 60, 75  # of NVTX events: ranges that were pushed or started; created domains
LIBRARIES = {  # whose own NVTX domains hold no range of the program
    "CCCL", "CUB", "NCCL", "CUBLAS", "CUBLASLT", "CUDNN", "CUSPARSE", "CUSOLVER", "CUFFT", "NVSHMEM", "UCX", "KVIKIO",
}  # fmt: skip
COPY_KINDS = (  # of exports without ENUM_CUDA_MEMCPY_OPER
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer",
)  # fmt: skip
BATCH_ROWS = 16384
NEVER = 1 << 62  # no clock shows such a time, in nanoseconds


def read(path: Path) -> Capture:
    """The capture in an export, gzipped or not. Raises TraceError if the file is none, ImpossibleCapture if it is
    damaged or contradicts itself."""
    export = Export(path)
    try:
        with ThreadPoolExecutor(3) as pool:
            pages = pool.submit(export.check_pages)
            kernels = pool.submit(export.activities)
            host = pool.submit(lambda: (export.ranges(), export.calls()))
            pages.result()
            activities, (ranges, calls) = kernels.result(), host.result()
        export.add_missing_processes(activities, calls)
        nodes, messages = export.nodes(), export.messages()
        overhead, functions = export.overhead(), export.host_functions()
    except BaseException:
        export.close()
        raise
    lost = "all ranges are of libraries, and none of the program; give it some, and trace NVTX with a newer nsys"
    findings = [finding("only_library_ranges", lost)] if export.has_only_library_ranges else []
    facts = export.facts
    return Capture(path, activities, calls, ranges, nodes, overhead, functions, messages, facts, findings, export)


class _Column:
    """Integers in order of arrival: no memory while all are equal, 32 bits while they fit, else 64."""

    def __init__(self, expected: int, wide: bool = False):
        self.expected, self.length, self.values, self.constant = max(expected, BATCH_ROWS), 0, None, None
        self.wide = wide  # always 64 bits

    def append(self, values: np.ndarray) -> None:
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        if self.length == 0:
            self.constant = low
        if self.values is None and not low == high == self.constant:
            self.values = np.empty(self.expected, np.int64 if self.wide or abs(self.constant) >= 1 << 31 else np.int32)
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


class Export(Source):
    """An open SQLite file of nsys. `path` is the user's name for it, in messages."""

    CONSEQUENCE = "the figures would be wrong; the file is damaged: export the report again, or capture again"

    def __init__(self, path: Path):
        self.path, self.folder = path, None
        try:
            self.file = self._unpacked()
            self._require_sqlite()
            self.columns = self._columns_by_table()  # and whether each is NOT NULL
            self.facts = self._facts()
            self.last, self.longest = self._bounds()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Removes what was unpacked."""
        if self.folder is not None:
            self.folder.cleanup()

    def _unpacked(self) -> Path:
        """The path of the SQLite file, unpacked if it is gzipped."""
        with self.path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                return self.path
        self.folder = tempfile.TemporaryDirectory(prefix="kernel_tables_")
        target = Path(self.folder.name, "export.sqlite")
        try:
            with gzip.open(self.path) as packed, target.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            reason = f"cannot be unpacked ({error}); the gzip file is cut off or damaged: copy it again"
            raise TraceError(f"{self.path}: {reason}") from error
        return target

    def _require_sqlite(self) -> None:
        with self.file.open("rb") as file:
            header = file.read(100)
        size, name = self.file.stat().st_size, self.path.name.removesuffix(".gz")
        page = int.from_bytes(header[16:18], "big")
        stated = int.from_bytes(header[28:32], "big") * (65536 if page == 1 else page)
        if name.endswith(REPORT_SUFFIXES):
            problem = f"a report of nsys; export it: nsys export --type sqlite --include-blobs=true {name}"
        elif not header:
            problem = "the file is empty; the export probably failed: export the report again"
        elif name.endswith((".pftrace", ".perfetto-trace")):
            stem = name.rpartition(".")[0]
            problem = f"Perfetto's protobuf; convert it: traceconv json {name} {stem}.json (get.perfetto.dev/traceconv)"
        elif not header.startswith(b"SQLite format 3\0"):
            problem = (
                f"neither SQLite nor JSON (it begins with {header[:8]!r}); give an export made by `nsys export --type"
                " sqlite`, or a trace of torch.profiler"
            )
        elif len(header) < 100 or (header[24:28] == header[92:96] and stated > size):
            problem = (
                f"cut off: {size} bytes where its header says {stated}; the copy or the export did not finish: copy or"
                " export it again"
            )
        elif journals := [
            f for end in ("journal", "wal") if (f := Path(f"{self.file}-{end}")).is_file() and f.stat().st_size
        ]:
            problem = (
                f"{journals[0].name} is next to it, so its writer has not finished; wait for it, or export it again"
            )
        else:
            return
        raise TraceError(f"{self.path}: {problem}")

    def _columns_by_table(self) -> dict[str, dict[str, bool]]:
        columns: dict[str, dict[str, bool]] = {}
        self.keyed = set()  # tables with a key, which is the number of the row, and not in the record
        for table, column, required, key in self.rows(
            'SELECT m.name, c.name, c."notnull", c.pk FROM sqlite_master m JOIN pragma_table_info(m.name) c'
            " WHERE m.type = 'table' AND m.rootpage > 0"
        ):
            columns.setdefault(table, {})[column] = bool(required)
            self.keyed |= {table} if key else set()
        read = {*TABLES, RUNTIME, NVTX, STRINGS, GRAPH_NODES}
        newer = [name for name in columns if re.sub(r"_V\d+$", "", name) in read - columns.keys()]
        if newer or not columns.keys() & {*METADATA, *read - {STRINGS}}:
            found = ", ".join(name[:50] for name in sorted(columns)[:5]) or "no table"
            problem = f"SQLite, but not of nsys: none of its tables is there (found: {found}); give an export"
            if newer:
                problem = f"{newer[0]} is a table of an nsys that is newer than this program; give an older export"
            raise TraceError(f"{self.path}: {problem} made by `nsys export --type sqlite`")
        return columns

    def has(self, table: str, *columns: str) -> bool:
        return table in self.columns and self.columns[table].keys() >= set(columns)

    @contextlib.contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection that reads the file; SQLite's errors mean damage. Invalid UTF-8 becomes replacement marks."""
        try:
            uri = f"{self.file.resolve().as_uri()}?mode=ro&immutable=1"
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
                connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
                yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self.damaged(str(error)) from error

    def rows(self, sql: str, *values) -> list[tuple]:
        """The rows of a small table."""
        with self.connection() as connection:
            return connection.execute(sql, values).fetchall()

    def damaged(self, reason: str) -> ImpossibleCapture:
        """The exception for a file that cannot be read."""
        reason = " ".join(reason.replace("*** in database main ***", "").split())[:200]
        message = f"SQLite cannot read it ({reason}); it is damaged or cut short: copy or export it again"
        return impossible(self.path, "damaged_file", message)

    def check_pages(self) -> None:
        """Raises ImpossibleCapture if a page is broken, lost, or in two tables. SQLite's check of the rows, which
        follows that of the pages and takes ten times as long, is interrupted: rows are checked by reading them."""
        with self.connection() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.set_progress_handler(lambda: 1, 10 * pages + 1000)
            try:
                (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            except sqlite3.OperationalError as error:
                if "interrupted" not in str(error):
                    raise
                return
            if verdict != "ok":
                raise self.damaged(verdict)

    def batches(
        self, table: str, columns: list[str], text: str | None, by_pages: bool
    ) -> Iterator[tuple[dict[str, tuple], list[bytes]]]:
        """Some rows of a large table at a time: by column, integers and the mask of NULLs; and texts. Raises Unusual if
        only SQLite can read it, not `by_pages`."""
        names = list(self.columns[table])
        if by_pages:
            root = self.rows("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", table)[0][0]
            pages, numbers = Pages(self.file), [names.index(column) for column in columns]
            try:
                for found, texts in pages.read(root, numbers, names.index(text) if text else None):
                    yield {column: found[number] for column, number in zip(columns, numbers, strict=True)}, texts
            except Damaged as error:
                raise impossible(
                    self.path, error.code, f"{table}: {error}: the file is damaged: copy or export it again"
                ) from error
            finally:
                pages.close()
            return
        quoted = ", ".join(f'"{column}"' for column in (*columns, *([text] if text else [])))
        with self.connection() as connection:
            cursor = connection.execute(f"SELECT {quoted} FROM {table}")
            while rows := cursor.fetchmany(BATCH_ROWS):
                *values, texts = zip(*rows, strict=True) if text else (*zip(*rows, strict=True), ())
                found = {}
                for column, cells in zip(columns, values, strict=True):
                    if not all(cell is None or isinstance(cell, int) for cell in cells):
                        raise impossible(self.path, "wrong_type", f"{column} of {table} holds other than integers")
                    is_null = np.array([cell is None for cell in cells], bool)
                    found[column] = (
                        np.array([cell or 0 for cell in cells], np.int64),
                        is_null if is_null.any() else None,
                    )
                yield found, [c if isinstance(c, bytes) else str(c or "").encode(errors="replace") for c in texts]

    def read(
        self, table: str, columns: dict[str, str | tuple[str, ...]], texts: _Texts | None = None
    ) -> dict[str, np.ndarray]:
        """Integer arrays by name; `columns` gives the column of each, or candidates for it. NULL, and a column that the
        table lacks, become NONE. With `texts`, "text" is the index of each row's text in it."""
        known, chosen = self.columns.get(table, {}), {}
        for name, given in columns.items():
            candidates = (given,) if isinstance(given, str) else given
            chosen[name] = next((candidate for candidate in candidates if candidate in known), None)
        with contextlib.suppress(Unusual):
            if table not in self.keyed:
                return self._read(table, chosen, texts, by_pages=True)
        return self._read(table, chosen, texts, by_pages=False)

    def _read(
        self, table: str, chosen: dict[str, str | None], texts: _Texts | None, by_pages: bool
    ) -> dict[str, np.ndarray]:
        known, rows = self.columns.get(table, {}), 0
        if known:  # each of the two is a look-up; together they would read all rows
            rows = self.rows(f"SELECT (SELECT max(rowid) FROM {table}) - (SELECT min(rowid) FROM {table})")[0][0] or 0
        expected = min(rows + 1, self.file.stat().st_size // 8)
        arrays = {name: _Column(expected, wide=name in ("start", "end")) for name in chosen}
        codes, wanted = [np.empty(0, np.int32)], list(dict.fromkeys(column for column in chosen.values() if column))
        text = "text" if texts is not None and "text" in known else None
        for found, raw in self.batches(table, wanted, text, by_pages) if known else ():
            count = len(next(iter(found.values()))[0])
            for name, column in arrays.items():
                if chosen[name] is None:
                    column.append(np.broadcast_to(np.int64(NONE), count))
                    continue
                values, is_null = found[chosen[name]]
                if is_null is not None:
                    self._require_may_be_null(table, chosen[name], known[chosen[name]])
                    values = np.where(is_null, NONE, values)
                column.append(values)
            if texts is not None:
                codes.append(texts.add(raw) if text else np.zeros(count, np.int32))
        result = {name: column.result() for name, column in arrays.items()}
        return result | {"text": np.concatenate(codes)} if texts is not None else result

    def _require_may_be_null(self, table: str, column: str, is_required: bool) -> None:
        if is_required:
            raise self.damaged(f"{column} of {table} is NULL, which the table forbids")
        if (column == "start" and table != GRAPH_NODES) or (column == "end" and table in TABLES):
            raise impossible(self.path, "no_time", f"times of {table} are missing: {self.CONSEQUENCE}")

    def require_times(self, table: str, start: np.ndarray, end: np.ndarray) -> None:
        """Raises ImpossibleCapture for times that no capture can have."""
        if not len(start):
            return
        low, high = int(min(start.min(), end.min())), int(max(start.max(), end.max()))
        shortest, longest, total = 0, 0, 0.0
        if low >= 0 and high <= self.last:  # else a difference may not fit into 64 bits
            for block in blocks(len(start)):
                length = end[block] - start[block]
                shortest, longest = min(shortest, int(length.min())), max(longest, int(length.max()))
                total += float(length.sum(dtype=np.float64))
        problems = {
            "negative_time": low < 0 and f"{table} has times below zero, the first {low} ns",
            "outside_capture": high > self.last and f"{table} has times up to {high} ns, after the capture's end",
            "ends_before_start": shortest < 0 and table not in TABLES and f"rows of {table} end before they start",
            "longer_than_capture": longest > self.longest
            and table != "OSRT_API"  # a thread may have waited since before the capture
            and f"{table} has a row of {longest} ns in a capture of {self.longest} ns",
            "times_overflow": total > NEVER >> 3 and f"the times of {table} add up to more than 64 bits hold",
        }
        for code, fact in problems.items():
            if fact:
                raise impossible(self.path, code, f"{fact}: {self.CONSEQUENCE}")

    def strings(self, ids: np.ndarray) -> dict[int, str]:
        """The string of each id that is used."""
        used, found = numbered(ids)[0].tolist(), {}
        for first in range(0, len(used) if self.has(STRINGS, "id", "value") else 0, 500):
            part = used[first : first + 500]
            marks = ", ".join("?" * len(part))
            found |= dict(self.rows(f"SELECT id, value FROM {STRINGS} WHERE id IN ({marks})", *part))
        return {key: self.text(value) for key, value in found.items() if value is not None and key != NONE}

    @staticmethod
    def text(value: object) -> str:
        """A value of any type as text."""
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else "" if value is None else str(value)

    def activities(self) -> Activities:
        labels_of = {KERNEL: ("demangledName", "shortName"), MEMCPY: "copyKind", GRAPH: ("graphId", "graphExecId")}
        nodes = "graphNodeId" if self.columns.get(GRAPH_NODES) else "no graph"
        parts, names = [], []
        for kind, table in enumerate(TABLES):
            wanted = {
                "start": "start", "end": "end", "correlation": "correlationId", "process": "globalPid",
                "stream": "streamId", "device": "deviceId",
                "label": labels_of.get(table, ()), "node": (nodes,) if nodes in self.columns.get(table, {}) else (),
            }  # fmt: skip
            self._require(table, "start", "end", "correlationId")
            columns = self.read(table, wanted)
            self.require_times(table, columns["start"], columns["end"])
            labels, index = numbered(columns.pop("label"))
            columns["name"] = index + np.int32(len(names)) if names else index
            columns["kind"] = np.broadcast_to(np.int8(kind), len(index))
            device, stream = columns.pop("device"), columns["stream"]
            if len(device) and (device.min() != 0 or device.max() != 0 or stream.min() < 0):
                columns["stream"] = device.astype(np.int64) << 32 | (stream.astype(np.int64) & 0xFFFFFFFF)
            names += self._names(table, labels)
            parts.append(columns)
        self.counts = [len(part["start"]) for part in parts]  # by kind
        parts = [part for part in parts if len(part["start"])] or parts[:1]
        one = parts[0] if len(parts) == 1 else None
        merged = one or {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}
        return Activities(names=names, **merged)

    def _require(self, table: str, *columns: str) -> None:
        if table in self.columns and not self.has(table, *columns):
            missing = ", ".join(sorted(set(columns) - self.columns[table].keys()))
            version = self.facts.get("EXPORT_SCHEMA_VERSION", "unknown")
            raise TraceError(
                f"{self.path}: table {table} has no column {missing} (schema {version}), which is needed to know what"
                " launched what; export the report with an nsys of 2022.4 or later"
            )

    def _names(self, table: str, labels: np.ndarray) -> list[str]:
        if table == KERNEL:
            strings = self.strings(labels)
            if lost := [label for label in labels.tolist() if not strings.get(label)]:
                raise impossible(
                    self.path,
                    "kernels_without_names",
                    f"{len(lost)} of {len(labels)} names of kernels are not among its strings: what ran is not known;"
                    " the export is cut short or damaged: export the report again",
                )
            return [strings[label] for label in labels.tolist()]
        if table == MEMCPY:
            kinds = dict(enumerate(COPY_KINDS))
            if self.has("ENUM_CUDA_MEMCPY_OPER", "id", "label", "name"):
                kinds |= dict(self.rows("SELECT id, ifnull(label, name) FROM ENUM_CUDA_MEMCPY_OPER"))
            return [f"[CUDA memcpy {kinds.get(label, f'kind {label}')}]" for label in labels.tolist()]
        return [f"[CUDA graph {label}]" if table == GRAPH else "[CUDA memset]" for label in labels.tolist()]

    def calls(self) -> Calls:
        self._require(RUNTIME, "start", "globalTid", "correlationId")
        wanted = {"start": "start", "thread": "globalTid", "correlation": "correlationId", "name": "nameId"}
        columns = self.read(RUNTIME, wanted)
        self.require_times(RUNTIME, columns["start"], columns["start"])
        threads, index = numbered(columns.pop("thread"))
        ids, columns["name"] = numbered(columns["name"])
        strings = self.strings(ids)
        names = {
            number: re.sub(r"_v\d+$", "", strings[key]) for number, key in enumerate(ids.tolist()) if key in strings
        }
        has_ends = RUNTIME not in self.columns or self.has(RUNTIME, "nameId", "end")
        self.has_call_names = has_ends and len(names) == len(ids)
        return Calls(**columns, thread=index, threads=threads, names=names)

    def add_missing_processes(self, activities: Activities, calls: Calls) -> None:
        """Gives activities without a process the only one that made calls. Raises TraceError if several did."""
        is_missing = activities.process == NONE
        if not is_missing.any():
            return
        known = np.unique(calls.process)
        if len(known) > 1:
            raise TraceError(
                f"{self.path}: {int(is_missing.sum())} activities name no process (globalPid) and {len(known)}"
                " processes made API calls, so correlation ids are ambiguous; export again, or profile one process at a"
                " time"
            )
        activities.process = np.where(is_missing, known[0] if len(known) else NONE, activities.process)

    def ranges(self) -> Ranges:
        self._require(NVTX, "start", "end", "globalTid", "eventType")
        texts = _Texts()
        wanted = {"start": "start", "end": "end", "thread": "globalTid", "type": "eventType"}
        columns = self.read(NVTX, wanted | {"text_id": "textId", "domain": "domainId"}, texts)
        if not (is_range := np.isin(columns["type"], (PUSHED, STARTED))).all():
            rows = np.flatnonzero(is_range)
            columns = {name: take(column, rows) for name, column in columns.items()}
        domains = self._domains() if len(columns["type"]) else {}
        columns = self._of_program(columns, domains)
        unclosed = np.flatnonzero(columns["end"] == NONE)
        if len(unclosed):
            columns["end"] = np.array(columns["end"])  # which may be one value in no memory
            columns["end"][unclosed] = columns["start"][unclosed]
        self.require_times(NVTX, columns["start"], columns["end"])
        if len(unclosed):
            columns["end"][unclosed] = self.last_time()
        ids, index = numbered(columns["text_id"])
        strings = self.strings(ids)
        if lost := len(set(ids.tolist()) - strings.keys() - {NONE}):
            raise impossible(
                self.path,
                "ranges_without_names",
                f"{lost} names of ranges are not among its strings: the export is cut short or damaged: export the"
                " report again",
            )
        registered = [strings.get(key, "").encode(errors="replace") for key in ids.tolist()]
        code = columns.pop("text")
        if (unwritten := np.flatnonzero(code == 0)).size:
            code[unwritten] = texts.add(registered)[index[unwritten]]
        used, code = numbered(code)
        all_names = list(texts.index)
        names = [all_names[number] or UNNAMED for number in used.tolist()]
        place = sorted(range(len(names)), key=names.__getitem__)  # so that the order of rows does not count
        code, names = np.argsort(place).astype(np.int32)[code], [names[number] for number in place]
        return Ranges.in_order(
            columns["start"], columns["end"], columns["thread"], code, names, columns["domain"],
            columns["type"] == PUSHED, domains, len(unclosed),
            by_name=self.facts.get("CAPTURE_BACKEND") != "torch",
        )  # fmt: skip

    def _of_program(self, columns: dict[str, np.ndarray], domains: dict) -> dict[str, np.ndarray]:
        """The ranges that are not of a library's own domain (CUB opens some around each of its kernels)."""
        of_library = [key for key, name in domains.items() if name.upper().removeprefix("LIB") in LIBRARIES]
        is_library = np.zeros(len(columns["type"]), bool)
        for process, domain in of_library:
            is_library |= (columns["domain"] == domain) & (columns["thread"] & ~THREAD_BITS == process)
        self.has_only_library_ranges = len(is_library) > 0 and bool(is_library.all())
        rows = np.flatnonzero(~is_library)
        return {name: take(column, rows) for name, column in columns.items()} if is_library.any() else columns

    def last_time(self) -> int:
        """The end of the capture: the latest end, or start of an open range."""
        tables = [table for table in (*TABLES, RUNTIME, NVTX) if self.has(table, "start", "end")]
        last = max(self.rows(f'SELECT max(ifnull("end", start)) FROM {table}')[0][0] or 0 for table in tables)
        self.require_times(RUNTIME, *2 * [np.array([last])])  # of an API call: other ends are checked
        return last

    def _domains(self) -> dict[tuple[int, int], str]:
        if not self.has(NVTX, "domainId", "text"):
            return {}
        text = (
            "text"
            if "textId" not in self.columns[NVTX] or not self.has(STRINGS, "id", "value")
            else f"ifnull(text, (SELECT value FROM {STRINGS} WHERE id = textId))"
        )
        rows = self.rows(f"SELECT globalTid, domainId, {text} FROM {NVTX} WHERE eventType = {DOMAIN_TYPE}")
        return {(thread & ~THREAD_BITS, domain): self.text(name) for thread, domain, name in rows if thread is not None}

    def nodes(self) -> Nodes:
        wanted = {"time": "start", "thread": "globalTid", "node": "graphNodeId", "original": "originalGraphNodeId"}
        usable = self.has(GRAPH_NODES, *wanted.values())
        columns = self.read(GRAPH_NODES if usable else "no table", wanted)
        return Nodes(**columns)

    def _spans(self, table: str) -> tuple[np.ndarray, np.ndarray]:
        """The starts and ends of a table's rows that have both."""
        found = self.read(table, {"start": "start", "end": "end"})
        is_known = (found["start"] >= 0) & (found["end"] >= found["start"])
        return found["start"][is_known], found["end"][is_known]

    def overhead(self) -> tuple[np.ndarray, np.ndarray]:
        starts, ends = zip(*map(self._spans, OVERHEADS), strict=True)
        return np.concatenate(starts), np.concatenate(ends)

    def host_functions(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        start, end = self._spans(HOST_NODE)  # as CUPTI calls it; nsys 2025.6 and newer
        return start, end, ["a host node of a graph"] * len(start)

    def messages(self) -> list[tuple[int, str]]:
        """nsys's messages, once for each process."""
        if not self.has("DIAGNOSTIC_EVENT", "severity", "text"):
            return []
        process = "globalPid" if self.has("DIAGNOSTIC_EVENT", "globalPid") else "NULL"
        rows = self.rows(f"SELECT DISTINCT severity, text, {process} FROM DIAGNOSTIC_EVENT")
        return [(level if isinstance(level, int) else 2, " ".join(str(text).split())) for level, text, _ in rows]

    def _facts(self) -> dict[str, str]:
        for table in METADATA:
            if self.has(table, "name", "value"):
                return {
                    self.text(name): self.text(value) for name, value in self.rows(f"SELECT name, value FROM {table}")
                }
        return {}

    def _bounds(self) -> tuple[int, int]:
        """The end of the capture on its clock and its length, or no limits if it states none."""
        if not self.has("ANALYSIS_DETAILS", "startTime", "stopTime", "duration"):
            return NEVER, NEVER
        rows = self.rows("SELECT startTime, stopTime, duration FROM ANALYSIS_DETAILS")
        for row in rows:
            if not all(isinstance(value, int) for value in row) or row[0] > row[1] or not 0 <= row[2] <= row[1]:
                message = f"the capture's own start, end and duration, {row}, cannot be: export the report again"
                raise impossible(self.path, "impossible_bounds", message)
        return max((row[1] for row in rows), default=NEVER), max((row[2] for row in rows), default=NEVER)

    # What only some commands need

    def sizes(self) -> dict[str, np.ndarray]:
        axes = [f"{size}{axis}" for size in ("grid", "block") for axis in "XYZ"]
        columns = self.read(KERNEL, {axis: (axis,) for axis in axes})
        result = {}
        for size in ("grid", "block"):
            xyz = np.stack([columns[f"{size}{axis}"] for axis in "XYZ"])
            found, index = np.unique(xyz, axis=1, return_inverse=True)
            texts = np.array(["" if NONE in one else "x".join(map(str, one)) for one in found.T.tolist()], object)
            result[size] = np.append(texts[index.reshape(-1)], [""] * (sum(self.counts) - xyz.shape[1]))
        return result

    def copies(self) -> dict[str, np.ndarray]:
        wanted = {"bytes": "bytes", "source": "srcKind", "target": "dstKind"}
        kernels, _, _, graphs = self.counts
        parts = [self.read(table, wanted) for table in (MEMCPY, MEMSET)]
        return {
            name: np.concatenate([np.full(kernels, NONE), *(part[name] for part in parts), np.full(graphs, NONE)])
            for name in wanted
        }

    def call_ends(self) -> dict[str, np.ndarray]:
        columns = self.read(RUNTIME, {"start": "start", "end": ("end", "start"), "returned": "returnValue"})
        self.require_times(RUNTIME, columns["start"], columns["end"])
        return {"end": columns["end"], "failed": columns["returned"] > 0}

    def os_calls(self) -> dict[str, object]:
        self._require("OSRT_API", "start", "end", "globalTid")
        columns = self.read("OSRT_API", {"start": "start", "end": "end", "thread": "globalTid", "name": "nameId"})
        self.require_times("OSRT_API", columns["start"], columns["end"])
        ids, columns["name"] = numbered(columns["name"])
        strings = self.strings(ids)
        return columns | {"names": [re.sub(r"_v\d+$", "", strings.get(key, "(unknown)")) for key in ids.tolist()]}

    def python_samples(self) -> dict[str, object]:
        rows = self._events("start", 34, PYTHON_DOMAIN)
        stacks = [frames_of(blob) or () for _, _, blob in rows]
        frames = {stack[0] for stack in stacks if stack}
        ids = sorted({number for frame in frames for number in frame[:2] if number < 1 << 31})
        strings = self.strings(np.array(ids, np.int64))
        return self._samples(
            [row[:2] for row in rows],
            [frame_name(*map(strings.get, stack[0][:2])) if stack else "(unknown)" for stack in stacks],
        )

    def native_samples(self) -> dict[str, object]:
        samples = self.read("COMPOSITE_EVENTS", {"id": "id", "start": "start", "thread": "globalTid"})
        self.require_times("COMPOSITE_EVENTS", samples["start"], samples["start"])
        frames = self.read(
            "SAMPLING_CALLCHAINS", {"id": "id", "symbol": "symbol", "module": "module", "depth": "stackDepth"}
        )
        symbols, modules = self.strings(frames["symbol"]), self.strings(frames["module"])
        is_python = np.array([modules.get(key, "").endswith(".py") for key in frames["module"].tolist()], bool)
        order = np.lexsort((frames["depth"], ~is_python, frames["id"]))  # Python's frames first, innermost first
        ids, first = np.unique(frames["id"][order], return_index=True)
        symbol_of = dict(zip(ids.tolist(), frames["symbol"][order][first].tolist(), strict=True))
        names = [symbols.get(symbol_of.get(sample), "(unknown)") for sample in samples["id"].tolist()]
        return self._samples(list(zip(samples["start"].tolist(), samples["thread"].tolist(), strict=True)), names)

    @staticmethod
    def _samples(rows: list[tuple], names: list[str]) -> dict[str, object]:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        times = np.array(rows, np.int64).reshape(-1, 2)
        return {
            "start": times[:, 0], "thread": times[:, 1],
            "name": np.array([numbers[name] for name in names], np.int64), "names": list(numbers),
        }  # fmt: skip

    def _events(self, columns: str, event_type: int, domain: str) -> list[tuple]:
        """Some columns, the thread and the payload of the NVTX events of one type in the domain of this name."""
        if not self.has(NVTX, "start", "end", "eventType", "text", "globalTid", "domainId"):
            return []
        blob = "CAST(binaryData AS BLOB)" if self.has(NVTX, "binaryData") else "NULL"
        rows = self.rows(
            f"SELECT {columns}, globalTid, {blob} FROM {NVTX} WHERE eventType = {event_type} AND (globalTid >> 24,"
            f" domainId) IN (SELECT globalTid >> 24, domainId FROM {NVTX} WHERE eventType = {DOMAIN_TYPE}"
            f" AND text = ?)",  # each process numbers its domains
            domain,
        )
        if not all(isinstance(row[0], int) and isinstance(row[-2], int) for row in rows):
            raise impossible(self.path, "wrong_type", f"times or threads of {NVTX} are no integers; export it again")
        return rows

    def nccl_calls(self) -> list[NcclCall]:
        """The calls of NCCL, by thread, then time; without bytes if the export lacks payloads. A call that was not over
        when the capture ended is left out, since its end is unknown."""
        layouts, text = {}, "text"
        if self.has("NVTX_PAYLOAD_SCHEMA_ENTRIES", "domainId", "schemaId", "name", "type", "offset"):
            rows = self.rows('SELECT domainId, schemaId, name, type, "offset" FROM NVTX_PAYLOAD_SCHEMA_ENTRIES')
            layouts = layouts_in(rows)
        if self.has(NVTX, "textId") and self.has(STRINGS, "id", "value"):
            text = f"ifnull(text, (SELECT value FROM {STRINGS} WHERE id = textId))"
        calls = []
        for start, end, name, thread, blob in self._events(f'start, "end", {text}', PUSHED, NCCL_DOMAIN):
            size, communicator = map(payload_fields(blob, layouts).get, NCCL_FIELDS)
            if isinstance(end, int):
                size = size if size is not None and size <= 1 << 44 else None  # so that sums fit into 64 bits
                calls.append(NcclCall(start, end, thread, str(name or ""), size, communicator))
        return sorted(calls, key=lambda call: (call.thread, call.start, -call.end))

    def torch_collectives(self) -> dict[tuple[int, int], tuple[str | None, int | None, int | None]]:
        table, names = "TORCH_COLLECTIVES", ("globalPid", "correlationId", "operation", "bytes", "communicator")
        rows = self.rows(f"SELECT {', '.join(names)} FROM {table}") if self.has(table, *names) else []
        if not all(isinstance(number, int | None) for row in rows for number in (*row[:2], *row[3:])):
            raise impossible(self.path, "wrong_type", f"{table} holds other than integers; record it again")
        return {row[:2]: row[2:] for row in rows}

    def gpus(self) -> list[str]:
        rows = self.rows("SELECT name FROM TARGET_INFO_GPU") if self.has("TARGET_INFO_GPU", "name") else []
        return sorted(str(name or "unnamed") for (name,) in rows)

    def began_utc_ns(self) -> int | None:
        table = "TARGET_INFO_SESSION_START_TIME"
        rows = self.rows(f"SELECT utcEpochNs FROM {table}") if self.has(table, "utcEpochNs") else []
        return min((time for (time,) in rows if isinstance(time, int)), default=None)
