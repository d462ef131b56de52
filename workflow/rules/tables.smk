"""From captures to tables; nothing here needs a GPU.

run_tables  capture.sqlite -> results/runs/RUN/{kernels,phases,ranges}.csv, status.json
reports     capture.sqlite -> results/runs/RUN/reports/*.csv: nsys's own summaries
plan        the grid -> results/grid.json
merge       every run -> results/tables/*.csv, provenance.json
"""

MERGED = ["runs", "timings", "steps", "cost", "kernels", "phases", "ranges"]


rule run_tables:
    input:
        capture="results/runs/{run}/capture.json",
        sqlite="results/runs/{run}/capture.sqlite",
    output:
        multiext("results/runs/{run}/kernels", ".csv", ".parquet"),
        multiext("results/runs/{run}/phases", ".csv", ".parquet"),
        multiext("results/runs/{run}/ranges", ".csv", ".parquet"),
        status="results/runs/{run}/status.json",
    log:
        "logs/{run}/tables.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        kernel_classes=json.dumps(config.get("kernel_classes", [])),
        sources=digest(program_sources("workflow/scripts/run_tables.py") + sources("kernel_tables/classes/*.toml")),
    message:
        "tables of {wildcards.run}"
    shell:
        "python -m workflow.scripts.run_tables --capture {input.capture:q} --kernel-classes {params.kernel_classes:q}"
        " --output $(dirname {output.status:q}) 2> >(tee {log:q} >&2)"


rule reports:
    input:
        capture="results/runs/{run}/capture.json",
        sqlite="results/runs/{run}/capture.sqlite",
    output:
        kernels="results/runs/{run}/reports/kernel_summary.csv",
        ranges="results/runs/{run}/reports/nvtx_summary.csv",
        api="results/runs/{run}/reports/api_summary.csv",
    log:
        "logs/{run}/reports.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        sources=digest(program_sources("workflow/scripts/reports.py")),
    message:
        "nsys's reports of {wildcards.run}"
    shell:
        "python -m workflow.scripts.reports --capture {input.capture:q} --output $(dirname {output.kernels:q}) 2> >(tee {log:q} >&2)"


rule plan:
    input:
        program_sources("workflow/scripts/plan.py"),
    output:
        "results/grid.json",
    log:
        "logs/plan.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        config=grid_part(config),
    message:
        "plan of the grid"
    shell:
        "python -m workflow.scripts.plan --config {params.config:q} --output {output:q} 2> >(tee {log:q} >&2)"


rule merge:
    input:
        of_every_run(
            "timing.json",
            "capture.json",
            "status.json",
            "kernels.parquet",
            "phases.parquet",
            "ranges.parquet",
        ),
        sources=program_sources("workflow/scripts/merge.py"),
        plan="results/grid.json",
    output:
        report(
            expand("results/tables/{table}.csv", table=["runs", "timings", "cost"]),
            caption="../report/table.rst",
            category="Tables",
        ),
        expand("results/tables/{table}.csv", table=["steps", "kernels", "phases", "ranges"]),
        expand("results/tables/{table}.parquet", table=MERGED),
        provenance="results/tables/provenance.json",
    log:
        "logs/merge.log",
    conda:
        "../../envs/analysis.yaml"
    message:
        "merging the runs"
    shell:
        "python -m workflow.scripts.merge --plan {input.plan:q} --runs results/runs --output $(dirname {output.provenance:q})"
        " 2> >(tee {log:q} >&2)"
