"""The attention sweep: what is measured, and brought together, where the chosen grid is of attention alone.

sweep         the specification of a row -> results/sweep/ROW/sweep.json: every context length in one process
sweep_plan    the grid -> results/grid.json
sweep_tables  every row -> results/tables/attention_sweep.csv, sweep_rows.csv, provenance.json

Rows are declared in profile_grid/study/sweep.py.
"""

ROW_SPECIFICATIONS = {name: row_specification(config, row) for name, row in ROWS.items()}
SWEEP_SOURCES = digest(
    program_sources("cs336_model/program/operator/row.py")
    + sources(SWEEP.file("measure"), *SWEEP.sources, "workflow/scripts/measure.py")
)
MAKERS = json.dumps(SWEEP_SOURCES)
PLAN_OF_SWEEP = sweep_plan(config)
EVERYTHING = [f"results/sweep/{row}/{SWEEP.result}" for row in ROWS] + MADE_FROM_RESULTS


onstart:
    gc.enable()  # all is planned
    count_measurements(longest_first(workflow))


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


rule sweep_plan:
    input:
        program_sources("workflow/scripts/plan.py"),
        again=lambda wildcards: STALENESS.again_if("results/grid.json", content_reason(lambda: PLAN_OF_SWEEP)),
    output:
        "results/grid.json",
    log:
        "logs/plan.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        config=json.dumps(sweep_part(config), sort_keys=True),
    message:
        "plan of the sweep"
    shell:
        "python -m workflow.scripts.plan --config {params.config:q} --output {output:q} 2> >(tee {log:q} >&2)"


rule sweep_tables:
    input:
        [f"results/sweep/{row}/{SWEEP.result}" for row in ROWS],
        sources=program_sources("workflow/scripts/sweep_tables.py"),
        plan="results/grid.json",
    output:
        report(
            expand("results/tables/{table}.csv", table=TABLES_OF_SWEEP),
            caption="../report/table.rst",
            category="Tables",
        ),
        expand("results/tables/{table}.parquet", table=TABLES_OF_SWEEP),
        provenance="results/tables/provenance.json",
    log:
        "logs/sweep_tables.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        sources=SWEEP_SOURCES,
    message:
        "tables of the sweep"
    shell:
        "python -m workflow.scripts.sweep_tables --plan {input.plan:q} --folder results/sweep --sources {params.sources}"
        " --output $(dirname {output.provenance:q}) 2> >(tee {log:q} >&2)"
