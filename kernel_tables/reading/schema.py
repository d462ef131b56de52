"""The tables of nsys: their names, the columns that are read of them, and which of them a file has.

Tables are in no promised order and exist only when they have rows; columns come and go with nsys's versions.
"""

from pathlib import Path

from kernel_tables.errors import TraceError
from kernel_tables.reading.small_queries import opened

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
METADATA = ("META_DATA_EXPORT", "EXPORT_META_DATA")
# Facts among the metadata: its rank, and the number of ranks; where JSON is invalid, what it lacks,
# and the nanoseconds of which all its times are multiples.
RANK_KEY, RANKS_KEY = "RECORDED_RANK", "RECORDED_RANKS"
DAMAGE_KEY, NOTES_KEY, RESOLUTION_KEY = "TRACE_DAMAGE", "TRACE_NOTES", "TRACE_RESOLUTION_NS"
WINDOW_KEY = "RECORDED_WINDOW"  # the content of the window of `record`, as JSON
WRITER_KEY = (
    "writtenBy"  # a key of this project's timelines, which distinguishes them from traces of PyTorch's profiler
)
PUSH_POP, START_END, DOMAIN_CREATE = 59, 60, 75
MISSING = -1  # replaces NULL and missing columns

# table: {name here: columns that may hold it, the first present wins}; a name in OPTIONAL may be lacking
ACTIVITY = {
    "start": ("start",),
    "end": ("end",),
    "correlation": ("correlationId",),
    "process": ("globalPid",),
}
WANTED = {
    KERNEL: ACTIVITY | {"label": ("demangledName", "shortName", "mangledName", "nameId")},
    MEMCPY: ACTIVITY | {"label": ("copyKind",)},
    MEMSET: ACTIVITY,
    GRAPH: ACTIVITY | {"label": ("graphId", "graphExecId")},
    RUNTIME: {"start": ("start",), "thread": ("globalTid",), "correlation": ("correlationId",)},
    NVTX: {
        "start": ("start",),
        "end": ("end",),
        "thread": ("globalTid",),
        "text_id": ("textId",),
    },
}
GRAPH_NODE = {"node": ("graphNodeId",)}
GRAPH_NODE_EVENTS = {
    "created": ("start",),  # not "start": nodes may be older than the capture, at times below zero
    "thread": ("globalTid",),
    "node": ("graphNodeId",),
    "original": ("originalGraphNodeId",),
}
PLACE = {"device": ("deviceId",), "stream": ("streamId",)}
SIZES = {f"{what}_{axis}": (f"{what}{axis.upper()}",) for what in ("grid", "block") for axis in "xyz"}
DOMAIN = {"domain": ("domainId",)}
DOMAIN_NAME = DOMAIN | {name: WANTED[NVTX][name] for name in ("thread", "text_id")}
CALLS = WANTED[RUNTIME] | {"end": ("end",), "returned": ("returnValue",)}
HOST_COLUMNS = {
    OSRT: {"start": ("start",), "end": ("end",), "thread": ("globalTid",), "name_id": ("nameId",)},
    SAMPLES: {"id": ("id",), "start": ("start",), "thread": ("globalTid",)},
    SAMPLE_FRAMES: {"id": ("id",), "symbol": ("symbol",), "module": ("module",), "depth": ("stackDepth",)},
}
COPY_DETAILS = {"bytes": ("bytes",), "source": ("srcKind",), "target": ("dstKind",)}
CALL_NAMES = {"start": ("start",), "end": ("end",), "name_id": ("nameId",)}
READ_BY_COLUMN = {*WANTED, GRAPH_NODES, *HOST_COLUMNS}  # whose rows are read all, or not at all
OPTIONAL = {
    "returned",
    "device",
    "stream",
    "process",
    "label",
    "domain",
    "text_id",
    "node",
    "original",
    *COPY_DETAILS,
    *SIZES,
}


def tables_of_nsys(path: Path, named: Path) -> dict[str, dict[str, bool]]:
    """The columns of every table of the SQLite file, by table, in their order, and whether each may be NULL; a view is
    no table, and may never end.

    Raises TraceError, with `named` as the file's name, if it is damaged or has none of nsys's tables.
    """
    with opened(path, named) as connection:
        table_columns = connection.execute(
            'SELECT m.name, c.name, c."notnull" FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c'
            " WHERE m.type = 'table' AND m.rootpage > 0 ORDER BY m.rowid, c.cid"  # a virtual table has no page
        ).fetchall()
    tables: dict[str, dict[str, bool]] = {}
    for table, column, is_required in table_columns:
        tables.setdefault(table, {})[column] = not is_required
    if not any(table in tables for table in (*METADATA, *WANTED)):
        raise TraceError(
            f"{named}: SQLite, but not of nsys: none of its tables is there (found: "
            f"{', '.join(name[:50] for name in sorted(tables)[:5]) or 'no table'});"
            " give an export made by `nsys export --type sqlite`"
        )
    return tables
