"""From merged tables to what people read; nothing here needs a GPU, or the captures.

summaries        merged tables -> the table behind each answer
answers          tables -> results/answers/DOCUMENT.md, and .tex and .typ where config.yaml asks for them
figures          tables -> results/figures/FIGURE.svg and .png
page             tables, figures, timeline -> results/report.html: everything in one file
dictionary       -> results/tables/README.md: every column of every table, with its unit and meaning
table_documents  tables -> results/tables/FORMAT/*: every table for a write-up
analysis         all that is made from the results of measurements
complete         fails, with the reasons, while a run of the grid is incomplete; every document is made before it
"""

SUFFIX = {"markdown": "md", "latex": "tex", "typst": "typ"}

DOCUMENTS = [
    expand(
        "results/answers/{name}.{suffix}",
        name=["answers", *QUESTION_DOCUMENTS],
        suffix=[SUFFIX[name] for name in FORMATS],
    ),
    expand("results/figures/{name}.{suffix}", name=FIGURES, suffix=["svg", "png"]),
    "results/tables/README.md",
    ancient(expand("results/tables/{format}", format=FORMATS)),  # the time of a folder tells nothing of its files
    "results/page/trace.json.gz",
    "results/report.html",
]


rule summaries:
    input:
        expand("results/tables/{table}.parquet", table=MERGED),
        sources=program_sources("workflow/scripts/summaries.py", *of_questions("table")),
    output:
        report(expand("results/tables/{table}.csv", table=SUMMARIES), caption="../report/table.rst", category="Tables"),
        expand("results/tables/{table}.parquet", table=SUMMARIES),
    log:
        "logs/summaries.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "the tables behind the answers"
    shell:
        "python -m workflow.scripts.summaries --tables results/tables 2> >(tee {log:q} >&2)"


rule answer:
    input:
        expand("results/tables/{table}.parquet", table=["runs", *SUMMARIES]),
        sources=program_sources("workflow/scripts/answers.py"),
        of_question=lambda wildcards: program_sources(*document_sources(wildcards.document)),
        shared=sources(
            "profile_grid/documents/templates/document.*",
            "profile_grid/documents/templates/macros.md.j2",
            "profile_grid/documents/templates/print.lua",
        ),
        templates=lambda wildcards: sources(
            "profile_grid/questions/*/document.md.j2"
            if wildcards.document == "answers"
            else f"profile_grid/questions/{wildcards.document}/document.md.j2"
        ),
        provenance="results/tables/provenance.json",
    output:
        report(
            expand("results/answers/{{document}}.{suffix}", suffix=[SUFFIX[name] for name in FORMATS]),
            caption="../report/answer.rst",
            category="Documents",
            labels={"document": "{document}"},
        ),
    log:
        "logs/answers/{document}.log",
    wildcard_constraints:
        document="|".join(["answers", *QUESTION_DOCUMENTS]),
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        formats=FORMATS,
    message:
        "document {wildcards.document}"
    shell:
        "python -m workflow.scripts.answers --tables results/tables --output results/answers"
        " --documents {wildcards.document} --formats {params.formats} 2> >(tee {log:q} >&2)"


rule figure:
    input:
        expand("results/tables/{table}.parquet", table=[*MERGED, *SUMMARIES]),
        sources=program_sources("workflow/scripts/figures.py"),
        of_question=lambda wildcards: program_sources(
            *of_questions("figure", question_of_figure(wildcards.figure).name)
        ),
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
    message:
        "figure {wildcards.figure}"
    shell:
        "python -m workflow.scripts.figures --tables results/tables --output results/figures"
        " --figures {wildcards.figure} 2> >(tee {log:q} >&2)"


rule page:
    input:
        expand("results/tables/{table}.parquet", table=[*MERGED, *SUMMARIES]),
        expand("results/figures/{figure}.png", figure=FIGURES),
        sources=program_sources("workflow/scripts/page.py", *of_questions("*"), *DECLARED_TABLES)
        + sources(
            *[f"{room}/page/*.{kind}" for room in ("kernel_tables", "profile_grid") for kind in ("css", "js", "j2")]
        ),
        provenance="results/tables/provenance.json",
        timeline="results/page/timeline.parquet",
        trace="results/page/trace.json.gz",
    output:
        report(
            "results/report.html", caption="../report/page.rst", category="Documents", labels={"document": "the page"}
        ),
    log:
        "logs/page.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "the page"
    shell:
        "python -m workflow.scripts.page --tables results/tables --figures results/figures --timeline {input.timeline:q}"
        " --trace page/trace.json.gz --output {output:q} 2> >(tee {log:q} >&2)"


rule dictionary:
    input:
        expand("results/tables/{table}.parquet", table=[*MERGED, *SUMMARIES]),
        sources=program_sources("workflow/scripts/dictionary.py", *DECLARED_TABLES),
    output:
        "results/tables/README.md",
    log:
        "logs/dictionary.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "the data dictionary"
    shell:
        "python -m workflow.scripts.dictionary --tables results/tables --output {output:q} 2> >(tee {log:q} >&2)"


rule table_documents:
    input:
        expand("results/tables/{table}.parquet", table=[*MERGED, *SUMMARIES]),
        sources=program_sources("workflow/scripts/table_documents.py", *DECLARED_TABLES),
        printing=sources("profile_grid/documents/templates/print.lua"),
        again=table_documents_again,
    output:
        [directory(f"results/tables/{name}") for name in FORMATS],
    log:
        "logs/table_documents.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        formats=FORMATS,
    message:
        "the tables for a write-up"
    shell:
        "python -m workflow.scripts.table_documents --tables results/tables --output results/tables"
        " --formats {params.formats} 2> >(tee {log:q} >&2)"


# What an archive of somebody else's results gives.
FROM_ARCHIVE = [
    expand("results/tables/{table}.{suffix}", table=MERGED, suffix=["csv", "parquet"]),
    multiext("results/page/timeline", ".csv", ".parquet"),
    "results/tables/provenance.json",
    "results/page/trace.json.gz",
    "results/grid.json",
]
# Each is asked for by its name, since Snakemake does not miss a deleted file that stands between others. Of the files of
# a run those that tell of the others are: the input functions of their jobs miss these.
MADE_FROM_RESULTS = [
    of_every_run(status_of),
    "results/grid.json",
    expand("results/tables/{table}.{suffix}", table=[*MERGED, *SUMMARIES], suffix=["csv", "parquet"]),
    "results/tables/provenance.json",
    multiext("results/page/timeline", ".csv", ".parquet"),
    DOCUMENTS,
]


rule analysis:
    input:
        MADE_FROM_RESULTS,
    localrule: True
    message:
        "everything is made that results give"


rule complete:
    input:
        DOCUMENTS,
        sources=program_sources("workflow/scripts/complete.py"),
        runs="results/tables/runs.parquet",
    output:
        "results/complete.json",
    log:
        "logs/complete.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "looking for runs that are not whole"
    shell:
        "python -m workflow.scripts.complete --runs {input.runs:q} --output {output:q} 2> >(tee {log:q} >&2)"


EVERYTHING = [
    "results/machine.txt",
    "results/complete.json",
    of_every_run(result_of),
    MADE_FROM_RESULTS,
]
