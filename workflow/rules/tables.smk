"""Tables of each run, then of all runs, then those of the questions (a) to (e).

run_tables      capture.json, capture.sqlite -> results/runs/RUN/{kernels,phases,ranges,findings,...}, status.json
memory_tables   memory.json, memory_history.json.gz -> results/runs/RUN/memory_{phases,...}
counter_tables  counters.json, ncu.csv and the capture -> results/runs/RUN/counters
merge           the results and tables of all runs -> results/tables/NAME.{parquet,csv}, README.md
summaries       merged tables -> results/tables/{forward_time,top_kernels,...}.{parquet,csv}

Every table is a Parquet and a CSV file; of a run only the former is declared, since each file costs time in large
grids. merge reads the plan of the measurements, too, and refuses a result that would be measured in another way now,
even where Snakemake has lost its metadata.
"""


rule run_tables:
    input:
        code=write_digest("run_tables", "workflow/scripts/run_tables.py", settings=OWN_RULES),
        result="results/runs/{run}/capture.json",
        capture="results/runs/{run}/capture.sqlite",
    output:
        table_files(CAPTURE_TABLES, "results/runs/{run}", ["parquet"]),
        status="results/runs/{run}/status.json",
    log:
        "logs/{run}/run_tables.log",
    params:
        rules=OWN_RULES,
    shell:
        "python -m workflow.scripts.run_tables {input.result:q} {params.rules} 2>&1 | tee {log:q}"


rule memory_tables:
    input:
        code=write_digest("memory_tables", "workflow/scripts/memory_tables.py"),
        result="results/runs/{run}/memory.json",
        history="results/runs/{run}/memory_history.json.gz",
    output:
        table_files(MEMORY_TABLES, "results/runs/{run}", ["parquet"]),
    log:
        "logs/{run}/memory_tables.log",
    shell:
        "python -m workflow.scripts.memory_tables {input.result:q} 2>&1 | tee {log:q}"


rule counter_tables:
    input:
        code=write_digest("counter_tables", "workflow/scripts/counter_tables.py", settings=CLASSES),
        result="results/runs/{run}/counters.json",
        counted="results/runs/{run}/ncu.csv",
        capture_result="results/runs/{run}/capture.json",
        capture="results/runs/{run}/capture.sqlite",
    output:
        table_files(["counters"], "results/runs/{run}", ["parquet"]),
    log:
        "logs/{run}/counter_tables.log",
    params:
        classes=CLASSES,
    shell:
        "python -m workflow.scripts.counter_tables results/runs/{wildcards.run} {params.classes:q} 2>&1 | tee {log:q}"


rule merge:
    input:
        plan=str(PLAN_FILE),
        code=write_digest("merge", "workflow/scripts/merge.py"),
        results=list(PLAN),
        tables=RUN_TABLES,
    output:
        table_files(MERGED),
        dictionary="results/tables/README.md",
    log:
        "logs/merge.log",
    localrule: True
    script:
        "../scripts/merge.py"


rule summaries:
    input:
        tables=parquet("runs", "timings", "phases", "kernels", "ranges", "warmup_steps", "steps"),
        code=write_digest("summaries", "workflow/scripts/summaries.py"),
    output:
        table_files(SUMMARIES),
    log:
        "logs/summaries.log",
    localrule: True
    script:
        "../scripts/summaries.py"
