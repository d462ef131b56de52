"""From captures to tables; nothing here needs a GPU.

tables_of_capture   capture.sqlite -> results/runs/RUN/{kernels,phases,ranges}.csv, status.json, reports/*.csv (nsys's own)
tables_of_counters  ncu.csv and capture.sqlite -> results/runs/RUN/{counters,counter_ranges,roofs}.csv, where asked for
plan               the grid -> results/grid.json
merge              every run, and its timings by further processes -> results/tables/*.csv, provenance.json
timeline           one capture -> results/page/timeline.parquet, and trace.json.gz for Perfetto: one training step
"""

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
            recipe=RERUNS.recipe(f"results/runs/{{run}}/{stage.tables_of_a_run.status_file}"),
        message:
            f"tables of {{wildcards.run}} from its {stage.name}"
        shell:
            "python -m workflow.make {params.recipe:q} 2> >(tee {log:q} >&2)"


add_analysis(
    "plan", "plan of the grid", [f"--config={grid_part(config)}", f"--output={GRID}"], outputs=[GRID], priority=FIRST
)
add_analysis(
    "merge",
    "merging the runs",
    [
        f"--plan={GRID}",
        "--runs=results/runs",
        "--output=results/tables",
        f"--sources={json.dumps({stage: SOURCES[stage] for stage, runs in SPECIFICATIONS.items() if runs})}",
        f"--processes={PROCESSES}",
    ],
    programs=STAGE_TABLES,
    # the largest sizes that fit are measured by bisection, on request
    inputs=[GRID, *paths.further_timings(PROCESSES, RUNS), *sorted(map(str, Path("results/largest").glob("*.json")))],
    of_runs=GRID,
    outputs=[*paths.files_of_tables(MERGED), PROVENANCE],
    runs=grid_plan(config)["runs"],
)
if CAPTURED:
    add_analysis(
        "timeline",
        f"one step of {SHOWN}",
        [
            f"--run={SHOWN}",
            f"--folder=results/runs/{SHOWN}",
            f"--kernel-classes={json.dumps(config.get('kernel_classes', []))}",
            f"--output={TIMELINE[1]}",
            f"--trace={TRACE[0]}",
        ],
        patterns=("kernel_tables/kernel_classes/*.toml",),
        inputs=[f"results/runs/{SHOWN}/{name}" for name in ("capture.json", "capture.sqlite", "status.json")],
        outputs=[*TIMELINE, *TRACE],
        priority=FIRST,
    )
