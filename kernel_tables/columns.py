"""The columns of tables that several functions make. docs/capture-columns.md says what each column means."""

STEP_OF_A_DEVICE = "rank device step"
COLUMNS = {
    "diff": "level name change before after launches_before launches_after ms_before ms_after ms_more ratio",
    "host": "process thread where source function calls time_ns own_ns samples estimated_ns launches us_per_launch",
    "communication": f"{STEP_OF_A_DEVICE} step_ns compute_ns exposed_communication_ns exposed_memory_ns idle_ns"
    " communication_ns overlapped_ns collectives bytes transfer_ns waiting_ns",
    "communication --collectives": f"{STEP_OF_A_DEVICE} number operation range kernel bytes bucket start_ns duration_ns"
    " exposed_ns transfer_ns waiting_ns algorithm_gb_per_s bus_gb_per_s",
}


def column_names(table: str) -> list[str]:
    """The names of the columns of `table`, one of COLUMNS."""
    return COLUMNS[table].split()
