"""The attention sweep: what is made where the chosen grid is of attention alone.

sweep            the specification of a row -> results/sweep/ROW/sweep.json: every context length in one process
attention_sweep  every row -> results/tables/attention_sweep.csv, answers/attention_sweep.md, figures/attention_sweep.svg

Rows are declared in profile_grid/study/sweep.py.
"""

ROW_SPECIFICATIONS = {name: row_specification(config, row) for name, row in ROWS.items()}
SWEEP_SOURCES = digest(
    program_sources("cs336_model/program/operator/row.py")
    + sources(file_of(SWEEP.runs), *SWEEP.sources, "workflow/scripts/measure.py")
)
EVERYTHING = [
    multiext("results/tables/attention_sweep", ".csv", ".parquet"),
    multiext("results/figures/attention_sweep", ".svg", ".png"),
    "results/answers/attention_sweep.md",
]


onstart:
    gc.enable()  # all is planned
    count_measurements(planned_rules(workflow))


def row_again(wildcards):
    """No input, but a job for a row that is there and is not what would be measured now."""
    reason = result_reason(ROW_SPECIFICATIONS[wildcards.row], SWEEP_SOURCES, SWEEP.files)
    return STALENESS.again_if(f"results/sweep/{wildcards.row}/{SWEEP.result}", reason)


rule sweep:
    input:
        row_again,
    output:
        result=f"results/sweep/{{row}}/{SWEEP.result}",
    log:
        "logs/sweep/{row}.log",
    conda:
        "../../envs/measure.yaml"
    resources:
        gpu=int(SWEEP.needs == GPU),
        time_limit_s=config["time_limit_s"],
    params:
        specification=lambda wildcards: ROW_SPECIFICATIONS[wildcards.row],
        sources=SWEEP_SOURCES,
    message:
        "sweep {wildcards.row}"
    shell:
        "python -m workflow.scripts.measure --stage sweep --specification {params.specification:q}"
        " --sources {params.sources} --output {output.result:q} --log {log:q} --time-limit-s {resources.time_limit_s}"


rule attention_sweep:
    input:
        [f"results/sweep/{row}/{SWEEP.result}" for row in ROWS],
        sources=program_sources("workflow/scripts/sweep.py") + sources("profile_grid/sweep/*.j2"),
    output:
        report(EVERYTHING[0][0], caption="../report/table.rst", category="Tables"),
        EVERYTHING[0][1],
        report(
            EVERYTHING[1][0],
            caption="../report/figure.rst",
            category="Figures",
            labels={"figure": "attention_sweep"},
        ),
        EVERYTHING[1][1],
        report(
            EVERYTHING[2],
            caption="../report/answer.rst",
            category="Documents",
            labels={"document": "attention_sweep"},
        ),
    log:
        "logs/attention_sweep.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        rows=list(ROWS),
    message:
        "the attention sweep"
    shell:
        "python -m workflow.scripts.sweep --rows {params.rows:q} --folder results/sweep --output results"
        " 2> >(tee {log:q} >&2)"
