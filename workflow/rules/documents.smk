"""From merged tables to what people read; nothing here needs a GPU, or the captures.

summaries        merged tables -> the tables that answer the questions
answers          tables -> results/answers/DOCUMENT.md
print            results/answers/DOCUMENT.md -> DOCUMENT.tex, .typ: in LaTeX and Typst, where config.yaml asks for them
figures          tables -> results/figures/FIGURE.svg and .png
page             tables, figures, timeline -> results/report.html: everything in one file
dictionary       -> results/tables/README.md: every column of every table, with its unit and meaning

The documents are made in one process, and so are the figures: one takes a tenth of the time that the imports take.
"""

PRINT_SUFFIXES = {"latex": "tex", "typst": "typ"}
PRINTED_DOCUMENTS = [
    f"results/answers/{document}.{suffix}"
    for document in DOCUMENTS
    for file_format, suffix in PRINT_SUFFIXES.items()
    if file_format in config.get("formats", [])
]
EVERY_TABLE = paths.table_files([*MERGED_NAMES, *SUMMARY_NAMES], ["parquet"])

add_analysis(
    "summaries",
    "the tables that answer the questions",
    ["--tables=results/tables"],
    programs=question_files(ROOT, "table"),
    inputs=paths.table_files(MERGED_NAMES, ["parquet"]),
    outputs=paths.table_files(SUMMARY_NAMES),
)
add_analysis(
    "answers",
    "the documents",
    ["--tables=results/tables", "--output=results/answers", "--documents", *DOCUMENTS],
    programs=question_files(ROOT, "document"),
    patterns=(
        "profile_grid/documents/templates/document.md.j2",
        "profile_grid/documents/templates/macros.md.j2",
        "profile_grid/documents/templates/short_names.md.j2",
        "profile_grid/questions/*/definitions.md.j2",
    ),
    inputs=[*paths.table_files(["runs", *SUMMARY_NAMES], ["parquet"]), PROVENANCE],
    outputs=[f"results/answers/{name}.md" for name in DOCUMENTS],
)
add_analysis(
    "figures",
    "the figures",
    ["--tables=results/tables", "--output=results/figures", "--figures", *FIGURES],
    programs=[
        path for question in QUESTIONS if question.figures for path in question_files(ROOT, "figure", question.name)
    ],
    inputs=EVERY_TABLE,
    outputs=expand("results/figures/{figure}.{suffix}", figure=FIGURES, suffix=["svg", "png"]),
)
add_analysis(
    "page",
    "the page",
    ["--tables=results/tables", "--figures=results/figures", "--output=results/report.html"]
    + ([f"--timeline={TIMELINE}", "--trace=page/trace.json.gz"] if HAS_CAPTURES else []),
    programs=[*question_files(ROOT, "*"), *TABLE_SOURCES],
    patterns=tuple(
        f"{package}/page/*.{suffix}" for package in ("kernel_tables", "profile_grid") for suffix in ("css", "js", "j2")
    ),
    inputs=[*EVERY_TABLE, *(f"results/figures/{figure}.png" for figure in FIGURES), PROVENANCE, *TIMELINE_FILES],
    outputs=["results/report.html"],
)
add_analysis(
    "dictionary",
    "the data dictionary",
    ["--tables=results/tables", "--output=results/tables/README.md"],
    programs=TABLE_SOURCES,
    inputs=EVERY_TABLE,
    outputs=["results/tables/README.md"],
)


rule print:
    input:
        "results/answers/{document}.md",
    output:
        "results/answers/{document}.{suffix}",
    log:
        "logs/print/{document}.{suffix}.log",
    wildcard_constraints:
        suffix="tex|typ",
    localrule: True
    message:
        "{output}"
    shell:
        "pypandoc pandoc {input:q} --standalone --variable geometry:margin=2cm --output {output:q} 2>&1 | tee {log:q}"
