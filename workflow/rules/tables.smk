"""From captures to tables; nothing here needs a GPU.

tables_of_capture   capture.sqlite -> results/runs/RUN/{kernels,phases,ranges}.csv, status.json, reports/*.csv (nsys's own)
tables_of_memory    memory_history.json.gz -> results/runs/RUN/memory_*.csv, where asked for
tables_of_counters  ncu.csv and capture.sqlite -> results/runs/RUN/{counters,counter_ranges,roofs}.csv, where asked for
plan                the grid -> results/grid.json
merge               every run, and its timings by further processes -> results/tables/*.csv, provenance.json
timeline            one capture -> results/page/timeline.parquet, and trace.json.gz for Perfetto: one step of one run
"""

for stage in STAGES:
    if stage.tables_of_a_run is None:
        continue

    rule:
        name:
            f"tables_of_{stage.name}"
        input:
            RERUNS.inputs(
                f"results/runs/{{run}}/{stage.status_file}",
                # The job does not read these files. They connect all stages of a run, which then are one job on one node.
                after=lambda wildcards, workload=stage.workload: [
                    f"results/runs/{wildcards.run}/{other.result_file}"
                    for other in STAGES
                    if other.of_every_run and other.workload is workload
                ],
            ),
        output:
            # RERUNS notices if tables next to it are missing; as outputs here they would cost an eighth of planning.
            status=f"results/runs/{{run}}/{stage.status_file}",
        log:
            f"logs/{{run}}/tables_of_{stage.name}.log",
        priority: FIRST_PRIORITY
        group:
            RESOURCES.group
        params:
            recipe=RERUNS.recipe(f"results/runs/{{run}}/{stage.status_file}"),
        message:
            f"tables of {{wildcards.run}} from its {stage.name}"
        shell:
            "python -m workflow.make {params.recipe:q} 2> >(tee {log:q} >&2)"


add_analysis(
    "plan",
    "plan of the grid",
    [f"--config={grid_settings_json(config)}", f"--output={GRID_PLAN}"],
    outputs=[GRID_PLAN],
    priority=FIRST_PRIORITY,
)
add_analysis(
    "merge",
    "merging the runs",
    [
        f"--plan={GRID_PLAN}",
        "--runs=results/runs",
        "--output=results/tables",
        f"--sources={json.dumps({stage: SOURCE_DIGESTS[stage] for stage, runs in SPECIFICATIONS.items() if runs})}",
        f"--processes={PROCESS_COUNT}",
    ],
    programs=STAGE_TABLE_SOURCES,
    inputs=[GRID_PLAN, *paths.further_timings(PROCESS_COUNT, RUNS)],
    runs_plan=GRID_PLAN,
    outputs=[*paths.table_files(MERGED_NAMES), PROVENANCE],
    entries=grid_plan(config)["runs"],
)
if HAS_CAPTURES:
    add_analysis(
        "timeline",
        f"one step of {SHOWN_RUN}",
        [
            f"--run={SHOWN_RUN}",
            f"--folder=results/runs/{SHOWN_RUN}",
            f"--kernel-classes={json.dumps(config.get('kernel_classes', []))}",
            f"--output={TIMELINE}",
            f"--trace={TRACE}",
        ],
        patterns=("kernel_tables/kernel_classes/*.toml",),
        inputs=[f"results/runs/{SHOWN_RUN}/{name}" for name in ("capture.json", "capture.sqlite", "status.json")],
        outputs=TIMELINE_FILES,
        priority=FIRST_PRIORITY,
    )
