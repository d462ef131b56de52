"""Tables of each run, then of all runs, then those of the questions (a) to (e).

run_tables      capture.json, capture.sqlite -> results/runs/RUN/{kernels,phases,ranges,findings,...}, status.json
memory_tables   memory.json, memory_history.json.gz -> results/runs/RUN/memory_{phases,...}, module_dtypes
counter_tables  counters.json, ncu.csv and the capture -> results/runs/RUN/counters
merge           the results and tables of all runs -> results/tables/NAME.{parquet,csv}, README.md
process_steps   timing.json of all processes -> results/processes/steps.{parquet,csv}
summaries       merged tables -> results/tables/{forward_time,top_kernels,...}.{parquet,csv}

Every table is a Parquet and a CSV file; of a run only the former is declared, since each file costs time in large
grids. merge reads the plan of the measurements, too, and refuses a result that would be measured in another way now,
even where Snakemake has lost its metadata.
"""


rule run_tables:
    input:
        code=write_digest("run_tables", "workflow/scripts/run_tables.py", "workflow/columns.yaml", settings=OWN_RULES),
        result="results/runs/{run}/capture.json",
        capture="results/runs/{run}/capture.sqlite",
    output:
        table_files(CAPTURE_TABLES + RANK_TABLES, "results/runs/{run}", ["parquet"]),
        status="results/runs/{run}/status.json",
    log:
        "logs/{run}/run_tables.log",
    params:
        key=wanted_key("results/runs/{run}/capture.json"),
        rules=OWN_RULES,
    message:
        "tables of {wildcards.run}"
    shell:
        "python -m workflow.scripts.run_tables --result {input.result:q} --key {params.key:q}"
        " {params.rules} 2>&1 | tee {log:q}"


rule memory_tables:
    input:
        result="results/runs/{run}/memory.json",
        history="results/runs/{run}/memory_history.json.gz",
        code=write_digest("memory_tables", "workflow/scripts/memory_tables.py", "workflow/columns.yaml"),
    output:
        table_files(MEMORY_TABLES, "results/runs/{run}", ["parquet"]),
    log:
        "logs/{run}/memory_tables.log",
    params:
        key=wanted_key("results/runs/{run}/memory.json"),
    message:
        "tables of the memory of {wildcards.run}"
    shell:
        "python -m workflow.scripts.memory_tables --result {input.result:q} --key {params.key:q} 2>&1 | tee {log:q}"


rule counter_tables:
    input:
        code=write_digest(
            "counter_tables", "workflow/scripts/counter_tables.py", "workflow/columns.yaml", settings=CLASSES
        ),
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
    message:
        "tables of the counters of {wildcards.run}"
    shell:
        "python -m workflow.scripts.counter_tables --folder results/runs/{wildcards.run}"
        " --classes {params.classes:q} 2>&1 | tee {log:q}"


rule merge:
    input:
        plan=str(PLAN_FILE),
        code=write_digest("merge", "workflow/scripts/merge.py", "workflow/columns.yaml"),
        results=list(PLAN),
        tables=RUN_TABLES,
    output:
        table_files(MERGED),
        dictionary="results/tables/README.md",
    log:
        "logs/merge.log",
    localrule: True
    params:
        keep=KEPT_TABLES,
    message:
        "merging the tables of {} runs".format(len(RUNS))
    script:
        "../scripts/merge.py"


rule process_steps:
    input:
        results=[path for path in PLAN if path.endswith("timing.json")],
        code=write_digest("process_steps", "workflow/scripts/process_steps.py", "workflow/columns.yaml"),
    output:
        table_files(["steps"], "results/processes"),
    log:
        "logs/process_steps.log",
    localrule: True
    message:
        "times of the steps of all processes"
    script:
        "../scripts/process_steps.py"


rule summaries:
    input:
        tables=table_files(["runs", "timings", "phases", "kernels", "ranges"], suffixes=["parquet"]),
        code=write_digest("summaries", "workflow/scripts/summaries.py", "workflow/columns.yaml"),
    output:
        table_files(SUMMARIES),
    log:
        "logs/summaries.log",
    localrule: True
    message:
        "tables of the questions (a) to (e)"
    script:
        "../scripts/summaries.py"
