"""Results of somebody else, from an archive: snakemake --cores 1 --directory theirs all --config packed=FILE

read_packed  FILE -> the merged tables and similar files; everything else is made from them, and nothing is measured
"""

add_analysis(
    "read_packed",
    f"reading {PACKED}",
    [f"--archive={PACKED}", "--results=results", f"--marker={MARKER}"],
    programs=TABLE_SOURCES,
    inputs=[PACKED],
    outputs=[*paths.table_files(MERGED_NAMES), PROVENANCE, *TIMELINE_FILES, GRID_PLAN],
)
