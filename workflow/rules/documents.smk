"""From tables to what people read.

complete  fails, with the reasons, while a run of the grid is incomplete; every document is made before it
"""

DOCUMENTS = []


rule complete:
    input:
        sources=sources("workflow/scripts/complete.py"),
        runs="results/tables/runs.parquet",
        reports=of_every_run("reports/kernel_summary.csv"),
    output:
        "results/complete.json",
    log:
        "logs/complete.log",
    conda:
        "../../envs/analysis.yaml"
    message:
        "looking for runs that are not whole"
    shell:
        "python -m workflow.scripts.complete --runs {input.runs:q} --output {output:q} 2> >(tee {log:q} >&2)"
