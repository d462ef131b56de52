"""Reading an SQLite export of Nsight Systems (2022.4 to 2026), or what publish.write_capture made of a trace.

Tables exist only if they have rows, and columns come and go with nsys's versions. Large tables are read page by page
(pages.py), two at once; meanwhile SQLite checks the pages of the file. NULL in a column that the file declares NOT
NULL, and other than integers in a column of numbers, mean damage.
"""

import contextlib
import gzip
import re
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, reduce
from pathlib import Path

import numpy as np

from kernel_tables import payloads
from kernel_tables.capture import (
    NONE,
    THREAD_BITS,
    Activities,
    Calls,
    Capture,
    NcclCall,
    Nodes,
    Numbers,
    Ranges,
    Source,
    numbered,
    range_name,
    take,
)  # fmt: skip
from kernel_tables.errors import ImpossibleCapture, TraceError, finding
from kernel_tables.files import REPORT_SUFFIXES, SQLITE_MAGIC
from kernel_tables.pages import Damaged, Pages

KERNEL, MEMCPY, MEMSET, GRAPH = TABLES = (  # in the order of KINDS
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
)  # fmt: skip
RUNTIME, NVTX, STRINGS = "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "StringIds"
GRAPH_NODES, HOST_NODE = "CUDA_GRAPH_NODE_EVENTS", "CUPTI_ACTIVITY_KIND_GRAPH_HOST_NODE"
OVERHEADS = ("CUPTI_ACTIVITY_KIND_OVERHEAD", "PROFILER_OVERHEAD")
METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # one or the other, by nsys's version
# Types of NVTX events: samples of Python (marks), ranges that were pushed or started, created domains.
SAMPLED, PUSHED, STARTED, DOMAIN_CREATED = 34, 59, 60, 75
LIBRARIES = {  # whose own NVTX domains hold no range of the program
    "CCCL", "CUB", "NCCL", "CUBLAS", "CUBLASLT", "CUDNN", "CUSPARSE", "CUSOLVER", "CUFFT", "NVSHMEM", "UCX", "KVIKIO",
}  # fmt: skip
COPY_KINDS = (  # ENUM_CUDA_MEMCPY_OPER
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer",
    "Unified Host-to-Device", "Unified Device-to-Host", "Unified Device-to-Device",
)  # fmt: skip
NEVER = 1 << 62  # no clock shows such a time, in nanoseconds
CONSEQUENCE = "the figures would be wrong; the file is damaged: export the report again, or capture again"


def read(path: Path) -> Capture:
    """The capture in an export. Raises TraceError if it is none, ImpossibleCapture if damaged or contradictory."""
    export = Export(path)
    try:
        export.open()
        with ThreadPoolExecutor(3) as pool:
            pages = pool.submit(export.check_pages)
            kernels = pool.submit(export.activities)
            host = pool.submit(lambda: (export.ranges(), export.calls()))
            pages.result()
            activities, (ranges, calls) = kernels.result(), host.result()
        nodes, messages, overhead = export.nodes(), export.messages(), export.spans(*OVERHEADS)
        waits = export.spans(HOST_NODE)  # of streams; nsys 2025.6 and newer
    except BaseException:
        export.close()
        raise
    fact = "all ranges are of libraries, and none of the program; give it some, and trace NVTX with a newer nsys"
    lost = [finding("only_library_ranges", fact)] if export.has_only_library_ranges else []
    functions = (*waits, ["a host node of a graph"] * len(waits[0]))  # as CUPTI calls it
    return Capture(path, activities, calls, ranges, nodes, overhead, functions, messages, export.facts, lost, export)


class Export(Source):
    """An SQLite file of nsys. `path` is the user's name for it, in messages."""

    def __init__(self, path: Path):
        self.path, self.unpacking = path, contextlib.ExitStack()

    def open(self) -> None:
        """Unpacks the file if it is gzipped, and reads what it says about itself."""
        self.file = self._unpacked()
        self._require_sqlite()
        self.columns = self._columns_by_table()  # and whether each is NOT NULL
        facts = [row for table in METADATA for row in self.select(table, "name", "value")]
        self.facts = {str(name or ""): str(value or "") for name, value in facts}
        self.last, self.longest = self._bounds()

    def close(self) -> None:
        self.unpacking.close()

    def _unpacked(self) -> Path:
        """The path of the SQLite file, unpacked if it is gzipped."""
        with self.path.open("rb") as file:
            if file.read(2) != b"\x1f\x8b":
                return self.path
        folder = self.unpacking.enter_context(tempfile.TemporaryDirectory(prefix="kernel_tables_"))
        target = Path(folder, "export.sqlite")
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
        is_perfetto = name.endswith((".pftrace", ".perfetto-trace")) or (header[:1] == b"\n" and not header.isascii())
        journals = [Path(f"{self.file}-{end}") for end in ("journal", "wal")]
        if name.endswith(REPORT_SUFFIXES):
            problem = f"a report of nsys; export it: nsys export --type sqlite --include-blobs=true {name}"
        elif not header:
            problem = "the file is empty; the export probably failed: export the report again"
        elif is_perfetto:
            problem = f"Perfetto's protobuf; convert it: traceconv json {name} {name}.json (get.perfetto.dev/traceconv)"
        elif not header.startswith(SQLITE_MAGIC):
            problem = f"neither SQLite nor JSON (it begins with {header[:8]!r}); give an export, or a trace of PyTorch"
        elif header[59:60] in (b"\2", b"\3"):
            problem = "SQLite in UTF-16, which nsys never writes; export the report again"
        elif header[24:28] == header[92:96] and stated > size:  # SQLite takes what a last page lacks for zeros
            problem = f"cut off: {size} bytes where its header says {stated}; copy or export it again"
        elif found := [file.name for file in journals if file.is_file() and file.stat().st_size]:
            problem = f"{found[0]} is next to it, so its writer has not finished; wait for it, or export it again"
        else:
            return
        raise TraceError(f"{self.path}: {problem}")

    def _columns_by_table(self) -> dict[str, dict[str, bool]]:
        columns: dict[str, dict[str, bool]] = {}
        listed = "sqlite_master m JOIN pragma_table_info(m.name) c WHERE m.type = 'table' AND m.rootpage > 0"
        for table, column, required in self.rows(f'SELECT m.name, c.name, c."notnull" FROM {listed}'):
            columns.setdefault(table, {})[column] = bool(required)
        read = {*TABLES, RUNTIME, NVTX, GRAPH_NODES}
        if newer := [name for name in columns if re.sub(r"_V\d+$", "", name) in {*read, STRINGS} - columns.keys()]:
            problem = f"{newer[0]} is a table of an nsys that is newer than this program"
        elif not columns.keys() & {*METADATA, *read}:
            found = ", ".join(name[:50] for name in sorted(columns)[:5]) or "no table"
            problem = f"SQLite, but not of nsys: none of its tables is there (found: {found})"
        else:
            return columns
        raise TraceError(f"{self.path}: {problem}; give one by `nsys export --type sqlite` (2022 to 2026)")

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
            raise damaged(self.path, str(error)) from error

    def rows(self, sql: str, *values) -> list[tuple]:
        """The rows of a small table."""
        with self.connection() as connection:
            return connection.execute(sql, values).fetchall()

    def select(self, table: str, *columns: str) -> list[tuple]:
        """These columns of a small table; no rows if it lacks one of them."""
        listed = ", ".join(f'"{column}"' for column in columns)
        return self.rows(f"SELECT {listed} FROM {table}") if self.has(table, *columns) else []

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
                raise damaged(self.path, verdict)

    def read(self, table: str, columns: dict[str, str], texts: Numbers | None = None) -> dict[str, np.ndarray]:
        """Integer arrays by name; `columns` gives the column of each. NULL, and a column that the table lacks, become
        NONE. With `texts`, "key" is the number of each row's text among them, or if it has none, of its "text_id"."""
        names = [*columns, "key"] if texts is not None else [*columns]
        result = {name: np.empty(0, np.int64) for name in names}
        for found, raw in self._batches(table, columns, texts is not None):
            if texts is not None:
                keys = zip(raw, found["text_id"].tolist(), strict=True)
                found["key"] = texts.of([text or key for text, key in keys])
            for name, values in found.items():
                result[name] = extended(result[name], values.copy() if name in ("start", "end") else compact(values))
        return result

    def _batches(self, table: str, columns: dict[str, str], has_text: bool) -> Iterator[tuple[dict, list[bytes]]]:
        """Some rows of a table at a time: the integers by name, and the texts."""
        known = self.columns.get(table, {})
        if not known:
            return
        number = {column: place for place, column in enumerate(known)}
        chosen = {name: number.get(column) for name, column in columns.items()}
        required = {number[one]: "damaged_file" for one in known if known[one]}
        times = {"start", "end"} if table in TABLES else {"start"}
        required |= {number[one]: "no_time" for one in times & known.keys()}
        required |= {number["globalPid"]: "damaged_file"} if table in TABLES else {}  # else its call would be unknown
        text = number.get("text") if has_text else None
        (root,) = self.rows("SELECT rootpage FROM sqlite_master WHERE type = 'table' AND name = ?", table)[0]
        try:
            with self.file.open("rb") as file:
                for count, values, raw in Pages(file.fileno()).read(root, {*chosen.values()} - {None}, required, text):
                    values[None] = np.broadcast_to(np.int64(NONE), count)
                    yield {name: values[place] for name, place in chosen.items()}, raw or [b""] * count
        except Damaged as error:
            message = f"{table}: {error}: the file is damaged: copy or export it again"
            raise ImpossibleCapture(self.path, error.code, message) from error

    def require_times(self, table: str, start: np.ndarray, end: np.ndarray) -> None:
        """Raises ImpossibleCapture for times that no capture can have."""
        if not len(start):
            return
        low, high = int(min(start.min(), end.min())), int(max(start.max(), end.max()))
        if low < 0:
            code, fact = "negative_time", f"{table} has times below zero, the first {low} ns"
        elif high > self.last:
            code, fact = "outside_capture", f"{table} has times up to {high} ns, after the capture's end"
        elif (length := end - start).min() < 0 and table not in TABLES:
            code, fact = "ends_before_start", f"rows of {table} end before they start"
        elif length.max() > self.longest and table != "OSRT_API":  # a thread may have waited since before the capture
            code = "longer_than_capture"
            fact = f"{table} has a row of {length.max()} ns in a capture of {self.longest} ns"
        elif length.sum(dtype=float) > NEVER >> 3:
            code, fact = "times_overflow", f"the times of {table} add up to more than 64 bits hold"
        else:
            return
        raise ImpossibleCapture(self.path, code, f"{fact}: {CONSEQUENCE}")

    @cached_property
    def strings(self) -> dict[int, str]:
        if not self.has(STRINGS, "id", "value"):
            return {}
        return dict(self.rows(f"SELECT id, CAST(value AS TEXT) FROM {STRINGS} WHERE value IS NOT NULL"))

    def activities(self) -> Activities:
        labels_of = {KERNEL: "demangledName", MEMCPY: "copyKind", GRAPH: "graphId"}
        parts, names = [], []
        for kind, table in enumerate(TABLES):
            wanted = {
                "start": "start", "end": "end", "correlation": "correlationId", "process": "globalPid",
                "stream": "streamId", "device": "deviceId", "label": labels_of.get(table, ""),
                "node": "graphNodeId" if self.columns.get(GRAPH_NODES) else "",
            }  # fmt: skip
            self._require(table, "start", "end", "correlationId", "globalPid")
            columns = self.read(table, wanted)
            self.require_times(table, columns["start"], columns["end"])
            labels, index = numbered(columns.pop("label"))
            columns["name"] = index + np.int32(len(names)) if names else index
            columns["kind"] = np.broadcast_to(np.int8(kind), len(index))
            device, stream = columns.pop("device"), columns["stream"]
            if (device != 0).any() or (stream < 0).any():
                columns["stream"] = device.astype(np.int64) << 32 | (stream.astype(np.int64) & 0xFFFFFFFF)
            names += self._names(table, labels.tolist())
            parts.append(columns)
        self.counts = [len(part["start"]) for part in parts]  # by kind
        return Activities(names=names, **{name: reduce(extended, [part[name] for part in parts]) for name in parts[0]})

    def _require(self, table: str, *columns: str) -> None:
        if table in self.columns and not self.has(table, *columns):
            missing = ", ".join(sorted(set(columns) - self.columns[table].keys()))
            version = self.facts.get("EXPORT_SCHEMA_VERSION", "unknown")
            fact = f"table {table} has no column {missing} (schema {version})"
            raise TraceError(f"{self.path}: {fact}; export the report with an nsys of 2022.4 or later")

    def _names(self, table: str, labels: list[int]) -> list[str]:
        if table == KERNEL:
            if lost := [label for label in labels if not self.strings.get(label)]:
                fact = f"{len(lost)} of {len(labels)} names of kernels are not among its strings"
                raise ImpossibleCapture(self.path, "kernels_without_names", f"{fact}: {CONSEQUENCE}")
            return [self.strings[label] for label in labels]
        if table == MEMCPY:
            kinds = dict(enumerate(COPY_KINDS))
            return [f"[CUDA memcpy {kinds.get(label, f'kind {label}')}]" for label in labels]
        return [f"[CUDA graph {label}]" if table == GRAPH else "[CUDA memset]" for label in labels]

    def calls(self) -> Calls:
        """The API calls, without their ends."""
        self._require(RUNTIME, "start", "globalTid", "correlationId")
        wanted = {"start": "start", "thread": "globalTid", "correlation": "correlationId", "name": "nameId"}
        columns = self.read(RUNTIME, wanted)
        self.require_times(RUNTIME, columns["start"], columns["start"])
        threads, index = numbered(columns.pop("thread"))
        ids, columns["name"] = numbered(columns["name"])
        names = {number: self.function(key) for number, key in enumerate(ids.tolist()) if key in self.strings}
        has_ends = RUNTIME not in self.columns or self.has(RUNTIME, "nameId", "end")
        self.has_call_names = has_ends and len(names) == len(ids)
        return Calls(**columns, thread=index, threads=threads, names=names)

    def function(self, key: int) -> str:
        return re.sub(r"_v\d+$", "", self.strings.get(key, "(unknown)"))

    def ranges(self) -> Ranges:
        self._require(NVTX, "start", "end", "globalTid", "eventType")
        texts = Numbers()
        wanted = {
            "start": "start", "end": "end", "thread": "globalTid", "type": "eventType", "text_id": "textId",
            "domain": "domainId",
        }  # fmt: skip
        columns = self.read(NVTX, wanted, texts)
        is_range = np.isin(columns["type"], (PUSHED, STARTED))
        of_library = np.zeros(len(is_range), bool)  # in a domain of its own, as CUB's ranges around each of its kernels
        domains = self._domains()
        for (process, domain), name in domains.items():
            if name.upper().removeprefix("LIB") in LIBRARIES:
                of_library |= (columns["domain"] == domain) & (columns["thread"] & ~THREAD_BITS == process)
        rows = np.flatnonzero(is_range & ~of_library)
        self.has_only_library_ranges = bool(is_range.any()) and not len(rows)
        columns = {name: take(column, rows) for name, column in columns.items()}
        start, end, is_open = columns["start"], columns["end"], columns["end"] == NONE
        self.require_times(NVTX, start, np.where(is_open, start, end))
        end = np.where(is_open, self.last_time() if is_open.any() else 0, end)
        used, index = numbered(columns["key"])
        keys = np.array([*texts], object)[used].tolist()
        known = {key: key.decode("utf-8", "replace") for key in keys if isinstance(key, bytes)}
        known |= {**self.strings, NONE: ""}
        if lost := len(set(keys) - known.keys()):
            message = f"{lost} names of ranges are not among its strings: {CONSEQUENCE}"
            raise ImpossibleCapture(self.path, "ranges_without_names", message)
        labels = [range_name(known[key]) for key in keys]
        names = sorted(set(labels))  # so that the order of rows does not count
        place = {name: number for number, name in enumerate(names)}
        return Ranges.in_order(
            start, end, columns["thread"], np.array([place[label] for label in labels], np.int32)[index], names,
            columns["domain"], domains, int(is_open.sum()), by_name=self.facts.get("CAPTURE_BACKEND") != "torch",
        )  # fmt: skip

    def last_time(self) -> int:
        """The end of the capture: the latest end, or start of an open range."""
        times = [self.read(table, {"start": "start", "end": "end"}) for table in (*TABLES, RUNTIME, NVTX)]
        last = max(int(column.max(initial=0)) for columns in times for column in columns.values())
        self.require_times(RUNTIME, *2 * [np.array([last])])  # of an API call: other ends are checked
        return last

    @property
    def nvtx_text(self) -> str:
        registered = f"ifnull(text, (SELECT value FROM {STRINGS} WHERE id = textId))"
        return registered if self.has(NVTX, "textId") and self.has(STRINGS, "id", "value") else "text"

    def _domains(self) -> dict[tuple[int, int], str]:
        if not self.has(NVTX, "domainId", "text"):
            return {}
        name = f"CAST({self.nvtx_text} AS TEXT)"
        rows = self.rows(f"SELECT globalTid, domainId, {name} FROM {NVTX} WHERE eventType = {DOMAIN_CREATED}")
        return {(thread & ~THREAD_BITS, domain): name or "" for thread, domain, name in rows if thread is not None}

    def nodes(self) -> Nodes:
        wanted = {"time": "start", "thread": "globalTid", "node": "graphNodeId", "original": "originalGraphNodeId"}
        return Nodes(**self.read(GRAPH_NODES if self.has(GRAPH_NODES, *wanted.values()) else "no table", wanted))

    def spans(self, *tables: str) -> tuple[np.ndarray, np.ndarray]:
        """The starts and ends of those rows of the tables that have both."""
        found = [self.read(table, {"start": "start", "end": "end"}) for table in tables]
        start, end = (np.concatenate([columns[name] for columns in found]) for name in ("start", "end"))
        is_known = (start >= 0) & (end >= start)
        return start[is_known], end[is_known]

    def messages(self) -> list[tuple[int, str]]:
        rows = self.select("DIAGNOSTIC_EVENT", "severity", "text")
        return [(level if isinstance(level, int) else 2, " ".join(str(text).split())) for level, text in rows]

    def _bounds(self) -> tuple[int, int]:
        """The end of the capture on its clock and its length, or no limits if it states none."""
        rows = self.select("ANALYSIS_DETAILS", "startTime", "stopTime", "duration")
        for row in rows:
            if not all(isinstance(value, int) for value in row) or row[0] > row[1] or not 0 <= row[2] <= row[1]:
                message = f"the capture's own start, end and duration, {row}, cannot be: export the report again"
                raise ImpossibleCapture(self.path, "impossible_bounds", message)
        return max((row[1] for row in rows), default=NEVER), max((row[2] for row in rows), default=NEVER)

    # What only some commands need

    def sizes(self) -> dict[str, np.ndarray]:
        axes = [f"{size}{axis}" for size in ("grid", "block") for axis in "XYZ"]
        columns = np.stack([*self.read(KERNEL, dict(zip(axes, axes, strict=True))).values()])
        result = {}
        for size, xyz in (("grid", columns[:3]), ("block", columns[3:])):
            found, index = np.unique(xyz, axis=1, return_inverse=True)
            texts = np.array(["" if NONE in one else "x".join(map(str, one)) for one in found.T.tolist()], object)
            result[size] = np.append(texts[index.reshape(-1)], [""] * (sum(self.counts) - xyz.shape[1]))
        return result

    def copies(self) -> dict[str, np.ndarray]:
        wanted = {"bytes": "bytes", "source": "srcKind", "target": "dstKind"}
        parts = [self.read(table, wanted) for table in (MEMCPY, MEMSET)]
        kernels, _, _, graphs = (np.full(count, NONE) for count in self.counts)
        return {name: np.concatenate([kernels, *(part[name] for part in parts), graphs]) for name in wanted}

    def call_ends(self) -> dict[str, np.ndarray]:
        end = "end" if self.has(RUNTIME, "end") else "start"
        columns = self.read(RUNTIME, {"start": "start", "end": end, "returned": "returnValue"})
        self.require_times(RUNTIME, columns["start"], columns["end"])
        return {"end": columns["end"], "failed": columns["returned"] > 0}

    def host_events(self) -> dict[str, dict]:
        self._require("OSRT_API", "start", "end", "globalTid")
        calls = self.read("OSRT_API", {"start": "start", "end": "end", "thread": "globalTid", "name": "nameId"})
        self.require_times("OSRT_API", calls["start"], calls["end"])
        ids, calls["name"] = numbered(calls["name"])
        calls |= {"names": list(map(self.function, ids.tolist()))}
        return {"osrt": calls, "python": self._python_samples(), "sample": self._native_samples()}

    def _python_samples(self) -> dict[str, object]:
        rows = []
        for start, _, _, thread, blob in self._nvtx_events(SAMPLED, payloads.PYTHON_DOMAIN):
            function, file, _ = (payloads.frames_of(blob) or [(None, None, 0)])[0]
            rows.append((start, thread, payloads.frame_name(self.strings.get(function), self.strings.get(file))))
        return self._samples(rows)

    def _native_samples(self) -> dict[str, object]:
        frames = "SELECT NULL AS id, NULL AS symbol"
        if self.has("SAMPLING_CALLCHAINS", "id", "symbol", "module", "stackDepth") and self.has(STRINGS, "id", "value"):
            of_python = f"module IN (SELECT id FROM {STRINGS} WHERE value LIKE '%.py')"
            rank = f"stackDepth - iif({of_python}, 1000000, 0)"
            frames = f"SELECT id, symbol, min({rank}) FROM SAMPLING_CALLCHAINS GROUP BY id"  # symbol of the least rank
        found = f"SELECT start, globalTid, symbol FROM COMPOSITE_EVENTS LEFT JOIN ({frames}) USING (id)"
        rows = self.rows(found) if self.has("COMPOSITE_EVENTS", "id", "start", "globalTid") else []
        return self._samples([(start, thread, self.strings.get(key, "(unknown)")) for start, thread, key in rows])

    def _samples(self, rows: list[tuple[int, int, str]]) -> dict[str, object]:
        """Samples from the time, the thread and the name of the innermost frame of each."""
        start, thread, name = map(list, zip(*rows, strict=True)) if rows else ([], [], [])
        self._require_integers("samples", [start, thread])
        start, numbers = np.array(start, np.int64), Numbers()
        self.require_times("samples", start, start)
        return {"start": start, "thread": np.array(thread, np.int64), "name": numbers.of(name), "names": list(numbers)}

    def _require_integers(self, of: str, rows: Iterable[tuple]) -> None:
        if not all(isinstance(value, int) for row in rows for value in row):
            raise ImpossibleCapture(self.path, "wrong_type", f"numbers of {of} are no integers; export it again")

    def _nvtx_events(self, event_type: int, domain: str) -> list[tuple]:
        """Start, end, text, thread and payload of the NVTX events of one type in the domain of this name."""
        if not self.has(NVTX, "start", "end", "eventType", "text", "globalTid", "domainId"):
            return []
        blob = "CAST(binaryData AS BLOB)" if self.has(NVTX, "binaryData") else "NULL"
        events = f"FROM {NVTX} WHERE eventType = {event_type} AND {in_domain(domain)}"
        return self.rows(f'SELECT start, "end", {self.nvtx_text}, globalTid, {blob} {events}')

    def layouts(self) -> payloads.Layouts:
        """Where the payloads of NCCL's calls have their fields."""
        columns = ("domainId", "schemaId", "name", "type", "offset")
        return payloads.layouts_in(self.select("NVTX_PAYLOAD_SCHEMA_ENTRIES", *columns))

    def nccl_calls(self) -> list[NcclCall]:
        """The calls of NCCL, by thread, then time; without bytes if the export lacks payloads. A call that was not over
        when the capture ended is left out, since its end is unknown."""
        layouts, calls = self.layouts(), []
        rows = [row for row in self._nvtx_events(PUSHED, payloads.NCCL_DOMAIN) if row[1] is not None]
        self._require_integers(NVTX, [(start, end, thread) for start, end, _, thread, _ in rows])
        for start, end, name, thread, blob in rows:
            size, communicator = map(payloads.payload_fields(blob, layouts).get, payloads.NCCL_FIELDS)
            size = size if size is not None and size <= 1 << 44 else None  # so that sums fit into 64 bits
            calls.append(NcclCall(start, end, thread, str(name or ""), size, communicator))
        return sorted(calls, key=lambda call: (call.thread, call.start, -call.end))

    def torch_collectives(self) -> dict[tuple[int, int], tuple[str | None, int | None, int | None]]:
        table, names = "TORCH_COLLECTIVES", ("globalPid", "correlationId", "operation", "bytes", "communicator")
        rows = self.select(table, *names)
        self._require_integers(table, [[one for one in (*row[:2], *row[3:]) if one is not None] for row in rows])
        return {row[:2]: (row[2] and str(row[2]), *row[3:]) for row in rows}

    def gpus(self) -> list[str]:
        return sorted(str(name or "unnamed") for (name,) in self.select("TARGET_INFO_GPU", "name"))

    def began_utc_ns(self) -> int | None:
        times = self.select("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
        return min((time for (time,) in times if isinstance(time, int)), default=None)


def in_domain(name: str, database: str = "main") -> str:
    """The SQL condition that an NVTX event is in the domain of this name. Each process numbers its domains."""
    domains = f"FROM {database}.{NVTX} WHERE eventType = {DOMAIN_CREATED} AND text = '{name}'"
    return f"(globalTid >> 24, domainId) IN (SELECT globalTid >> 24, domainId {domains})"


def damaged(path: Path, reason: str) -> ImpossibleCapture:
    """The exception for a file that SQLite cannot read."""
    reason = "".join(character for character in reason if character.isprintable() or character.isspace())
    reason = " ".join(re.sub(r"\*\*\* in database \w+ \*\*\*", "", reason).split())[:200]
    message = f"SQLite cannot read it ({reason}); it is damaged or cut short: copy or export it again"
    return ImpossibleCapture(path, "damaged_file", message)


def compact(values: np.ndarray) -> np.ndarray:
    """The values: in no memory if all are equal, in 32 bits if they fit."""
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    kind = np.int32 if low >= -(1 << 31) and high < 1 << 31 else np.int64
    return np.broadcast_to(kind(low), len(values)) if low == high else values.astype(kind, copy=False)


def extended(column: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The column with these values behind it: in no memory if all are equal; else the column itself grows, uncopied."""
    if not len(column) or not len(values):
        return column if len(column) else values
    length = len(column) + len(values)
    if column.strides == values.strides == (0,) and column[0] == values[0]:
        return np.broadcast_to(column[0], length)
    wide = np.result_type(column, values)
    column = column if column.flags.owndata and column.dtype == wide else column.astype(wide)
    column.resize(length, refcheck=False)
    column[-len(values) :] = values
    return column
