"""The table of predicted memory: components of each run by its shape, the predicted peak, and what was measured."""

import pandas as pd

from cs336_model.arithmetic.memory import NON_TENSOR_BYTES
from cs336_model.program.variants.predicted_memory import PARTS, predicted_parts, predicted_peak_bytes
from profile_grid.quantities import known
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.study.dimensions import KEYS, LEADING
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.ideal import declared_shape
from profile_grid.tables.per_pass import Merged


def memory_predicted(merged: Merged) -> pd.DataFrame:
    """One row per component of each run whose sizes are known, the largest component of a run first."""
    rows = []
    for run in merged["runs"].to_dict("records"):
        shape = declared_shape(run)
        if shape is None:
            continue
        settings = {key: run[key] for key in KEYS}
        gpu_bytes = run["device_total_bytes"] if known(run["device_total_bytes"]) else None
        peak_bytes, status = predicted_peak_bytes(shape, settings), run[TIMING.status_column]
        columns_of_run = {name: run[name] for name in LEADING} | {
            "peak_bytes": peak_bytes, "device_total_bytes": gpu_bytes,
            "fits": bool(peak_bytes + NON_TENSOR_BYTES <= gpu_bytes) if gpu_bytes else None,
            "status": status, "fitted": {COMPLETE: True, OUT_OF_MEMORY: False}.get(status),  # None: not known
            "measured_peak_bytes": run["peak_allocated_bytes"] if status == COMPLETE else None,
        }  # fmt: skip
        bytes_by_component = predicted_parts(shape, settings)
        for component in sorted(bytes_by_component, key=bytes_by_component.get, reverse=True):
            rows.append(columns_of_run | {"component": component, "bytes": bytes_by_component[component]})
    return MEMORY_PREDICTED.table(rows)


MEMORY_PREDICTED = TableSpec(
    "memory_predicted",
    "One row per run of this project's model and component: what one GPU needs by the shapes, and whether it fitted",
    columns(f"""
    component | text | | {", ".join(PARTS)}
    bytes | int | B | the component at its largest; not all components are that large at the same time
    peak_bytes | int | B | predicted peak of the tensors of a step; with divided parameters at most that
    device_total_bytes | int | B | memory of the GPU; empty if the run did not say
    fits | bool | | whether the predicted peak and {NON_TENSOR_BYTES // 2**20} MiB outside of tensors fit into it
    status | text | | how the timing ended
    fitted | bool | | whether the run fitted; empty unless it is complete or out of memory
    measured_peak_bytes | int | B | the most that was allocated; empty unless the timing is complete, and on a CPU
"""),
    make=memory_predicted,
)
TABLES = (MEMORY_PREDICTED,)
PAGE_TABLES = (PageTable("memory_predicted", "Memory by the shapes, by component"),)
