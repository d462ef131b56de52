"""The tables of nsys: their names, the columns that are read of them, and which of them a file has.

Tables are in no promised order and exist only when they have rows; columns come and go with nsys's versions.
"""

from pathlib import Path

from kernel_tables.errors import TraceError
from kernel_tables.reading.small_queries import read_only_connection

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPH = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
GRAPH_NODES = "CUDA_GRAPH_NODE_EVENTS"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
STRINGS = "StringIds"
BOUNDS = "ANALYSIS_DETAILS"
GPUS = "TARGET_INFO_GPU"
SESSION = "TARGET_INFO_SESSION_START_TIME"
OSRT, SAMPLES, SAMPLE_FRAMES = "OSRT_API", "COMPOSITE_EVENTS", "SAMPLING_CALLCHAINS"
METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")  # one or the other, by nsys's version
# Names of metadata: the capture's rank, and the number of ranks. Of a capture that was converted from JSON: where the
# JSON is invalid, what it lacks, and the nanoseconds of which all its times are multiples.
RANK_KEY, RANKS_KEY = "RECORDED_RANK", "RECORDED_RANKS"
DAMAGE_KEY, NOTES_KEY, RESOLUTION_KEY = "TRACE_DAMAGE", "TRACE_NOTES", "TRACE_RESOLUTION_NS"
WINDOW_KEY = "RECORDED_WINDOW"  # what `record` noted about its window, as JSON
WRITER_KEY = "writtenBy"  # a key in this project's timelines that traces of PyTorch's profiler lack
MARK, PUSH_POP, START_END, DOMAIN_CREATE = 34, 59, 60, 75  # types of NVTX events
MISSING = -1  # replaces NULL and missing columns

# By table, the columns that are read: {name here: names in nsys's versions, of which the first that is there counts}.
# Those in OPTIONAL_COLUMNS may be lacking. An activity is named by its "label": a string id, or the number of a kind.
ACTIVITY_COLUMNS = {
    "start": ("start",),
    "end": ("end",),
    "correlation": ("correlationId",),
    "process": ("globalPid",),
}
TABLE_COLUMNS = {
    KERNEL: ACTIVITY_COLUMNS | {"label": ("demangledName", "shortName", "mangledName", "nameId")},
    MEMCPY: ACTIVITY_COLUMNS | {"label": ("copyKind",)},
    MEMSET: ACTIVITY_COLUMNS,
    GRAPH: ACTIVITY_COLUMNS | {"label": ("graphId", "graphExecId")},
    RUNTIME: {"start": ("start",), "thread": ("globalTid",), "correlation": ("correlationId",)},
    NVTX: {
        "start": ("start",),
        "end": ("end",),
        "thread": ("globalTid",),
        "text_id": ("textId",),
    },
}
GRAPH_NODE_COLUMN = {"node": ("graphNodeId",)}
NODE_CREATION_COLUMNS = {
    "created": ("start",),  # not "start": nodes may be older than the capture, at times below zero
    "thread": ("globalTid",),
    "node": ("graphNodeId",),
    "original": ("originalGraphNodeId",),
}
PLACE_COLUMNS = {"device": ("deviceId",), "stream": ("streamId",)}
SIZE_COLUMNS = {f"{size}_{axis}": (f"{size}{axis.upper()}",) for size in ("grid", "block") for axis in "xyz"}
DOMAIN_COLUMN = {"domain": ("domainId",)}
DOMAIN_NAME_COLUMNS = DOMAIN_COLUMN | {name: TABLE_COLUMNS[NVTX][name] for name in ("thread", "text_id")}
CALL_COLUMNS = TABLE_COLUMNS[RUNTIME] | {"end": ("end",), "returned": ("returnValue",)}
HOST_COLUMNS = {
    OSRT: {"start": ("start",), "end": ("end",), "thread": ("globalTid",), "name_id": ("nameId",)},
    SAMPLES: {"id": ("id",), "start": ("start",), "thread": ("globalTid",)},
    SAMPLE_FRAMES: {"id": ("id",), "symbol": ("symbol",), "module": ("module",), "depth": ("stackDepth",)},
}
COPY_COLUMNS = {"bytes": ("bytes",), "source": ("srcKind",), "target": ("dstKind",)}
CALL_NAME_COLUMNS = {"start": ("start",), "end": ("end",), "name_id": ("nameId",)}  # for Capture.call_functions
# Every read of these reads all rows to the last column, which proves that the rows are sound (soundness.py).
TABLES_READ_TO_LAST_COLUMN = {*TABLE_COLUMNS, GRAPH_NODES, *HOST_COLUMNS}
OPTIONAL_COLUMNS = {
    "returned", "device", "stream", "process", "label", "domain", "text_id", "node", "original", *COPY_COLUMNS,
    *SIZE_COLUMNS,
}  # fmt: skip


def tables_of_nsys(path: Path, user_path: Path) -> dict[str, dict[str, bool]]:
    """By table of the SQLite file, its columns in their order, and whether each may be NULL.

    Views are left out, since reading one may never end. Raises TraceError, which names `user_path`, if the file is
    damaged or has none of nsys's tables.
    """
    with read_only_connection(path, user_path) as connection:
        table_columns = connection.execute(
            'SELECT m.name, c.name, c."notnull" FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c'
            " WHERE m.type = 'table' AND m.rootpage > 0 ORDER BY m.rowid, c.cid"  # a virtual table has no page
        ).fetchall()
    tables: dict[str, dict[str, bool]] = {}
    for table, column, is_required in table_columns:
        tables.setdefault(table, {})[column] = not is_required
    if not any(table in tables for table in (*METADATA, *TABLE_COLUMNS)):
        raise TraceError(
            f"{user_path}: SQLite, but not of nsys: none of its tables is there (found: "
            f"{', '.join(name[:50] for name in sorted(tables)[:5]) or 'no table'});"
            " give an export made by `nsys export --type sqlite`"
        )
    return tables
