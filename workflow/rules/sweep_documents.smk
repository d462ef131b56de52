"""From the tables of the attention sweep to what people read.

attention_sweep  its tables -> results/answers/attention_sweep.md, figures/attention_sweep.svg and .png, tables/README.md,
                 report.html
analysis         all that is made from the results of the rows
"""

DOCUMENTS_OF_SWEEP = [
    "results/answers/attention_sweep.md",
    multiext("results/figures/attention_sweep", ".svg", ".png"),
    "results/tables/README.md",
    "results/report.html",
]
FROM_ARCHIVE = [
    "results/grid.json",
    expand("results/tables/{table}.{suffix}", table=TABLES_OF_SWEEP, suffix=["csv", "parquet"]),
    "results/tables/provenance.json",
]
MADE_FROM_RESULTS = FROM_ARCHIVE + DOCUMENTS_OF_SWEEP


rule attention_sweep:
    input:
        expand("results/tables/{table}.parquet", table=TABLES_OF_SWEEP),
        sources=program_sources("workflow/scripts/sweep.py")
        + sources(
            "profile_grid/sweep/*.j2",
            "profile_grid/documents/templates/macros.md.j2",
            *[f"{room}/page/*.{kind}" for room in ("kernel_tables", "profile_grid") for kind in ("css", "js", "j2")],
        ),
        provenance="results/tables/provenance.json",
    output:
        report(
            DOCUMENTS_OF_SWEEP[0],
            caption="../report/answer.rst",
            category="Documents",
            labels={"document": "attention_sweep"},
        ),
        report(
            DOCUMENTS_OF_SWEEP[1][0],
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "attention_sweep"},
        ),
        DOCUMENTS_OF_SWEEP[1][1],
        DOCUMENTS_OF_SWEEP[2],
        report(
            DOCUMENTS_OF_SWEEP[3],
            caption="../report/page.rst",
            category="Documents",
            labels={"document": "the page"},
        ),
    log:
        "logs/attention_sweep.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    message:
        "the attention sweep"
    shell:
        "python -m workflow.scripts.sweep --tables $(dirname {input.provenance:q}) --output results 2> >(tee {log:q} >&2)"


rule analysis:
    input:
        MADE_FROM_RESULTS,
    localrule: True
    message:
        "everything is made that results give"
