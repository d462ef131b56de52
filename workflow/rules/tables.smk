"""From captures to tables; nothing here needs a GPU.

tables_of_capture   capture.sqlite -> results/runs/RUN/{kernels,phases,ranges}.csv, status.json, reports/*.csv (nsys's own)
tables_of_counters  ncu.csv and capture.sqlite -> results/runs/RUN/{counters,counter_ranges,roofs}.csv, where asked for
plan               the grid -> results/grid.json
merge              every run -> results/tables/*.csv, provenance.json
timeline           one capture -> results/page/timeline.parquet, and trace.json.gz for Perfetto: one training step
"""

SHOWN = run_to_show(RUNS)

for stage in STAGES:
    if stage.tables_of_a_run is None:
        continue

    rule:
        name:
            f"tables_of_{stage.name}"
        input:
            result=f"results/runs/{{run}}/{stage.result}",
            files=[f"results/runs/{{run}}/{name}" for name in stage.files],
            read_too=read_by(stage),
            again=tables_again(stage),
            # of no use to the tables: it connects all stages of a run, so that they are one job on one node of a cluster
            beside=ancient(
                [
                    f"results/runs/{{run}}/{one.result}"
                    for one in STAGES
                    if one.of_every_run and one.workload is stage.workload
                ]
            ),
        output:
            # it names the tables beside it, and `again` misses them: as outputs they are an eighth of the time to plan
            status=f"results/runs/{{run}}/{stage.tables_of_a_run.status_file}",
        log:
            f"logs/{{run}}/tables_of_{stage.name}.log",
        priority: FIRST
        group:
            group_of_run
        conda:
            "../../envs/analysis.yaml"
        params:
            stage=stage.name,
            own_rules=OWN_RULES_TOLD,
            sources=TABLE_SOURCES[stage.name],
        message:
            f"tables of {{wildcards.run}} from its {stage.name}"
        shell:
            "python -m workflow.scripts.run_tables --stage {params.stage} --folder $(dirname {output.status:q})"
            " --own-rules {params.own_rules:q} --sources {params.sources} 2> >(tee {log:q} >&2)"


rule plan:
    input:
        program_sources("workflow/scripts/plan.py"),
        again=lambda wildcards: STALENESS.again_if("results/grid.json", content_reason(lambda: grid_plan(config))),
    output:
        "results/grid.json",
    log:
        "logs/plan.log",
    priority: FIRST
    localrule: True
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
        # a status tells what the tables beside it were made from, so that other tables are another status
        of_every_run(result_of),
        of_every_run(status_of),
        sources=program_sources("workflow/scripts/merge.py", *STAGE_TABLES),
        plan="results/grid.json",
        largest=sorted(str(path) for path in Path("results/largest").glob("*.json")),  # found by bisection, on request
    output:
        report(
            expand("results/tables/{table}.csv", table=[name for name in MERGED if name not in LARGE_TABLES]),
            caption="../report/table.rst",
            category="Tables",
        ),
        expand("results/tables/{table}.csv", table=LARGE_TABLES),
        expand("results/tables/{table}.parquet", table=MERGED),
        provenance="results/tables/provenance.json",
    log:
        "logs/merge.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        sources=MAKERS,
    message:
        "merging the runs"
    shell:
        "python -m workflow.scripts.merge --plan {input.plan:q} --runs results/runs --output $(dirname {output.provenance:q})"
        " --sources {params.sources:q} 2> >(tee {log:q} >&2)"


rule timeline:
    input:
        sources=program_sources("workflow/scripts/timeline.py") + sources("kernel_tables/classes/*.toml"),
        sqlite=f"results/runs/{SHOWN}/capture.sqlite",
        status=f"results/runs/{SHOWN}/status.json",
    output:
        multiext("results/page/timeline", ".csv", ".parquet"),
        trace="results/page/trace.json.gz",
    log:
        "logs/timeline.log",
    priority: FIRST
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        run=SHOWN,
        kernel_classes=json.dumps(config.get("kernel_classes", [])),
    message:
        "one step of {params.run}"
    shell:
        "python -m workflow.scripts.timeline --run {params.run:q} --folder $(dirname {input.status:q})"
        " --kernel-classes {params.kernel_classes:q} --output results/page/timeline.parquet --trace {output.trace:q} 2> >(tee {log:q} >&2)"
