"""From captures to tables; nothing here needs a GPU.

tables_of_capture   capture.sqlite -> results/runs/RUN/{kernels,phases,ranges}.csv, status.json, reports/*.csv (nsys's own)
tables_of_counters  ncu.csv and capture.sqlite -> results/runs/RUN/{counters,counter_ranges,roofs}.csv, where asked for
plan               the grid -> results/grid.json
merge              every run, and its timings by further processes -> results/tables/*.csv, provenance.json
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
            RERUNS.inputs(
                f"results/runs/{{run}}/{stage.tables_of_a_run.status_file}",
                # it does not read them: they connect all stages of a run, so that they are one job on one node of a cluster
                after=lambda wildcards, workload=stage.workload: [
                    f"results/runs/{wildcards.run}/{each.result}"
                    for each in STAGES
                    if each.of_every_run and each.workload is workload
                ],
            ),
        output:
            # RERUNS misses the tables next to it: as outputs here they would be an eighth of the time to plan
            status=f"results/runs/{{run}}/{stage.tables_of_a_run.status_file}",
        log:
            f"logs/{{run}}/tables_of_{stage.name}.log",
        priority: FIRST
        group:
            RESOURCES.group
        conda:
            "../../envs/analysis.yaml"
        params:
            stage=stage.name,
            own_rules=CUSTOM_RULES,
            recipe=RERUNS.recipe(f"results/runs/{{run}}/{stage.tables_of_a_run.status_file}"),
        message:
            f"tables of {{wildcards.run}} from its {stage.name}"
        shell:
            "python -m workflow.make {params.recipe:q} workflow.scripts.run_tables --stage {params.stage}"
            " --folder $(dirname {output.status:q}) --own-rules {params.own_rules:q} 2> >(tee {log:q} >&2)"


RERUNS.add(
    Making(
        "plan",
        programs=("workflow/scripts/plan.py",),
        settings=digest_of_text(grid_part(config)),
        outputs=("results/grid.json",),
    )
)


rule plan:
    input:
        RERUNS.inputs("results/grid.json"),
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
        recipe=RERUNS.recipe("results/grid.json"),
    message:
        "plan of the grid"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.plan --config {params.config:q} --output {output:q} 2> >(tee {log:q} >&2)"


RERUNS.add(
    Making(
        "merge",
        programs=("workflow/scripts/merge.py", *STAGE_TABLES),
        # the largest sizes that fit are measured by bisection, on request
        inputs=(
            "results/grid.json",
            *paths.further_timings(PROCESSES, RUNS),
            *sorted(str(path) for path in Path("results/largest").glob("*.json")),
        ),
        of_runs="results/grid.json",
        outputs=(*paths.files_of_tables(MERGED), "results/tables/provenance.json"),
    ),
    grid_plan(config)["runs"],
)


rule merge:
    input:
        RERUNS.inputs("results/tables/provenance.json"),
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
        sources=json.dumps(SOURCES),
        processes=PROCESSES,
        recipe=RERUNS.recipe("results/tables/provenance.json"),
    message:
        "merging the runs"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.merge --plan results/grid.json --runs results/runs"
        " --output results/tables --sources {params.sources:q} --processes {params.processes} 2> >(tee {log:q} >&2)"


if CAPTURED:

    RERUNS.add(
        Making(
            "timeline",
            programs=("workflow/scripts/timeline.py",),
            patterns=("kernel_tables/kernel_classes/*.toml",),
            settings=digest_of_settings([SHOWN, config.get("kernel_classes", [])]),
            inputs=tuple(f"results/runs/{SHOWN}/{name}" for name in ("capture.json", "capture.sqlite", "status.json")),
            outputs=(*TIMELINE, *TRACE),
        )
    )

    rule timeline:
        input:
            RERUNS.inputs(TIMELINE[0]),
        output:
            [*TIMELINE, *TRACE],
        log:
            "logs/timeline.log",
        priority: FIRST
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            run=SHOWN,
            kernel_classes=json.dumps(config.get("kernel_classes", [])),
            recipe=RERUNS.recipe(TIMELINE[0]),
        message:
            "one step of {params.run}"
        shell:
            "python -m workflow.make {params.recipe:q} workflow.scripts.timeline --run {params.run:q}"
            " --folder results/runs/{params.run} --kernel-classes {params.kernel_classes:q} --output results/page/timeline.parquet"
            " --trace results/page/trace.json.gz 2> >(tee {log:q} >&2)"
