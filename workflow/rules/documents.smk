"""From merged tables to what people read; nothing here needs a GPU, or the captures.

summaries        merged tables -> the tables that answer the questions
answers          tables -> results/answers/DOCUMENT.md, and .tex and .typ where config.yaml asks for them
figures          tables -> results/figures/FIGURE.svg and .png
page             tables, figures, timeline -> results/report.html: everything in one file
dictionary       -> results/tables/README.md: every column of every table, with its unit and meaning
table_documents  tables -> results/tables/FORMAT/*: every table for a write-up
analysis         all that is made from the results of measurements
complete         fails, with the reasons, while a run of the grid is incomplete; every document is made before it
"""

SUFFIX = {"markdown": "md", "latex": "tex", "typst": "typ"}

TIMELINE = ["results/page/timeline.csv", "results/page/timeline.parquet"] if CAPTURED else []
TRACE = ["results/page/trace.json.gz"] if CAPTURED else []
ANSWERS = [f"results/answers/{name}.{SUFFIX[style]}" for name in ["answers", *QUESTION_DOCUMENTS] for style in FORMATS]
DOCUMENTS = [
    ANSWERS,
    expand("results/figures/{name}.{suffix}", name=FIGURES, suffix=["svg", "png"]),
    "results/tables/README.md",
    expand("results/tables/{format}", format=FORMATS),
    TRACE,
    "results/report.html",
]
CONTENTS = "results/contents.txt"
RERUNS.add(
    Making(
        "summaries",
        programs=("workflow/scripts/summaries.py", *question_files(ROOT, "table")),
        inputs=tuple(paths.parquet_of(MERGED)),
        outputs=tuple(paths.files_of_tables(SUMMARIES)),
    )
)


rule summaries:
    input:
        RERUNS.inputs(paths.files_of_tables(SUMMARIES)[0]),
    output:
        report(expand("results/tables/{table}.csv", table=SUMMARIES), caption="../report/table.rst", category="Tables"),
        expand("results/tables/{table}.parquet", table=SUMMARIES),
    log:
        "logs/summaries.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        recipe=RERUNS.recipe(paths.files_of_tables(SUMMARIES)[0]),
    message:
        "the tables that answer the questions"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.summaries --tables results/tables 2> >(tee {log:q} >&2)"


RERUNS.add(
    Making(
        "answers",
        programs=("workflow/scripts/answers.py", *question_files(ROOT, "document")),
        patterns=(
            "profile_grid/documents/templates/document.*",
            "profile_grid/documents/templates/macros.md.j2",
            "profile_grid/documents/templates/question.md.j2",
            "profile_grid/documents/templates/print.lua",
            "profile_grid/questions/*/document.md.j2",
        ),
        settings=digest_of_settings(FORMATS),
        inputs=(*paths.parquet_of(["runs", *SUMMARIES]), "results/tables/provenance.json"),
        outputs=tuple(ANSWERS),
    )
)


# in one process: a document takes a tenth of the time that the imports take
rule answers:
    input:
        RERUNS.inputs(ANSWERS[0]),
    output:
        [
            report(
                path,
                caption="../report/answer.rst",
                category="Documents",
                labels={"document": Path(path).stem},
            )
            for path in ANSWERS
        ],
    log:
        "logs/answers.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        documents=["answers", *QUESTION_DOCUMENTS],
        formats=FORMATS,
        recipe=RERUNS.recipe(ANSWERS[0]),
    message:
        "the documents"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.answers --tables results/tables --output results/answers"
        " --documents {params.documents} --formats {params.formats} 2> >(tee {log:q} >&2)"


for figure_name in FIGURES:
    RERUNS.add(
        Making(
            f"figure {figure_name}",
            programs=(
                "workflow/scripts/figures.py",
                *question_files(ROOT, "figure", catalogue.question_of_figure(figure_name).name),
            ),
            inputs=tuple(paths.parquet_of([*MERGED, *SUMMARIES])),
            outputs=(f"results/figures/{figure_name}.svg", f"results/figures/{figure_name}.png"),
        )
    )


rule figure:
    input:
        RERUNS.inputs("results/figures/{figure}.svg"),
    output:
        report(
            "results/figures/{figure}.svg",
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "{figure}"},
        ),
        "results/figures/{figure}.png",
    log:
        "logs/figures/{figure}.log",
    wildcard_constraints:
        figure="|".join(FIGURES),
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        recipe=RERUNS.recipe("results/figures/{figure}.svg"),
    message:
        "figure {wildcards.figure}"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.figures --tables results/tables --output results/figures"
        " --figures {wildcards.figure} 2> >(tee {log:q} >&2)"


RERUNS.add(
    Making(
        "page",
        programs=("workflow/scripts/page.py", *question_files(ROOT, "*"), *DECLARED_TABLES),
        patterns=tuple(
            f"{package}/page/*.{suffix}"
            for package in ("kernel_tables", "profile_grid")
            for suffix in ("css", "js", "j2")
        ),
        inputs=(
            *paths.parquet_of([*MERGED, *SUMMARIES]),
            *(f"results/figures/{figure}.png" for figure in FIGURES),
            "results/tables/provenance.json",
            *TIMELINE,
            *TRACE,
        ),
        outputs=("results/report.html",),
    )
)


rule page:
    input:
        RERUNS.inputs("results/report.html"),
    output:
        report(
            "results/report.html", caption="../report/page.rst", category="Documents", labels={"document": "the page"}
        ),
    log:
        "logs/page.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        recipe=RERUNS.recipe("results/report.html"),
        step="--timeline results/page/timeline.parquet --trace page/trace.json.gz" if CAPTURED else "",
    message:
        "the page"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.page --tables results/tables --figures results/figures"
        " {params.step} --output {output:q} 2> >(tee {log:q} >&2)"


RERUNS.add(
    Making(
        "dictionary",
        programs=("workflow/scripts/dictionary.py", *DECLARED_TABLES),
        inputs=tuple(paths.parquet_of([*MERGED, *SUMMARIES])),
        outputs=("results/tables/README.md",),
    )
)


rule dictionary:
    input:
        RERUNS.inputs("results/tables/README.md"),
    output:
        "results/tables/README.md",
    log:
        "logs/dictionary.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        recipe=RERUNS.recipe("results/tables/README.md"),
    message:
        "the data dictionary"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.dictionary --tables results/tables --output {output:q} 2> >(tee {log:q} >&2)"


RERUNS.add(
    Making(
        "table_documents",
        programs=("workflow/scripts/table_documents.py", *DECLARED_TABLES),
        patterns=("profile_grid/documents/templates/print.lua",),
        settings=digest_of_settings(FORMATS),
        inputs=tuple(paths.parquet_of([*MERGED, *SUMMARIES])),
        outputs=(),
        folders=tuple(f"results/tables/{name}" for name in FORMATS),
    )
)


rule table_documents:
    input:
        RERUNS.inputs(f"results/tables/{FORMATS[0]}"),
    output:
        [directory(f"results/tables/{name}") for name in FORMATS],
    log:
        "logs/table_documents.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        formats=FORMATS,
        recipe=RERUNS.recipe(f"results/tables/{FORMATS[0]}"),
    message:
        "the tables for a write-up"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.table_documents --tables results/tables --output results/tables"
        " --formats {params.formats} 2> >(tee {log:q} >&2)"


# What an archive of somebody else's results gives.
FROM_ARCHIVE = [
    expand("results/tables/{table}.{suffix}", table=MERGED, suffix=["csv", "parquet"]),
    TIMELINE,
    "results/tables/provenance.json",
    TRACE,
    "results/grid.json",
]
# Each is requested by name, since Snakemake does not notice a deleted intermediate file. Of a run only the status files
# are: the input functions of their jobs notice the others.
MADE_FROM_RESULTS = [
    paths.of_every_run(RUNS, paths.status_of),
    "results/grid.json",
    expand("results/tables/{table}.{suffix}", table=[*MERGED, *SUMMARIES], suffix=["csv", "parquet"]),
    "results/tables/provenance.json",
    TIMELINE,
    DOCUMENTS,
    CONTENTS,
]


rule analysis:
    input:
        MADE_FROM_RESULTS,
    localrule: True
    message:
        "everything is made that results give"


RERUNS.add(
    Making(
        "complete",
        programs=("workflow/scripts/complete.py",),
        inputs=("results/tables/runs.parquet",),
        outputs=("results/complete.json",),
    )
)


rule complete:
    input:
        # every document is made before a missing run is reported
        RERUNS.inputs("results/complete.json", after=lambda wildcards: paths.flat(DOCUMENTS)),
    output:
        "results/complete.json",
    log:
        "logs/complete.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        recipe=RERUNS.recipe("results/complete.json"),
    message:
        "looking for runs that are incomplete"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.complete --runs results/tables/runs.parquet --output {output:q} 2> >(tee {log:q} >&2)"


EVERYTHING = [
    "results/machine.txt",
    "results/complete.json",
    paths.of_every_run(RUNS, paths.result_of),
    MADE_FROM_RESULTS,
]
