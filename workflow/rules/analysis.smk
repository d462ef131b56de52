"""A rule for each job of the analysis; included last, when all of them are known.

analysis  all that is made from the results of measurements
complete  fails, with the reasons, while a run of the grid is incomplete; every document is made before it
contents  -> results/contents.txt: every file but those of runs; removes what earlier grids left next to them
"""

CONTENTS = "results/contents.txt"
MADE_ONCE = [path for making, *_ in ANALYSIS for path in (*making.outputs, *making.folders)]
# Each is requested by name, since Snakemake does not notice a deleted intermediate file. Of a run only the status files
# are: the input functions of their jobs notice the others.
MADE = [
    *paths.of_every_run(RUNS, lambda stage: stage.tables_of_a_run and stage.tables_of_a_run.status_file),
    *MADE_ONCE,
    CONTENTS,
]
if PACKED:
    EVERYTHING = MADE
else:
    EVERYTHING = [
        "results/machine.txt",
        "results/complete.json",
        *paths.of_every_run(RUNS, lambda stage: stage.result),
        *MADE,
        *PROCESS_STEPS,
    ]
    add_analysis(
        "complete",
        "looking for runs that are incomplete",
        ["--runs=results/tables/runs.parquet", "--output=results/complete.json"],
        inputs=["results/tables/runs.parquet"],
        outputs=["results/complete.json"],
        after=MADE_ONCE,
    )
    if PROCESS_STEPS:
        add_analysis(
            "process_steps",
            "times of all processes",
            [f"--plan={GRID}", "--folder=results/processes", f"--processes={PROCESSES}"],
            inputs=[GRID, *paths.further_timings(PROCESSES, RUNS)],
            outputs=PROCESS_STEPS,
        )
FILES_OF_GRID = [CONTENTS, *RERUNS.files_made("results/runs/")]
add_analysis(
    "contents",
    "the files of this grid",
    [f"--files={json.dumps(FILES_OF_GRID)}", f"--output={CONTENTS}"],
    outputs=[CONTENTS],
    also=lambda: leftover_reason(FILES_OF_GRID),
)


for making, message, after, priority in ANALYSIS:

    rule:
        name:
            making.name
        input:
            RERUNS.inputs((*making.outputs, *making.folders)[0], after=lambda wildcards, after=after: after),
        output:
            [in_report(path) for path in making.outputs],
            [directory(path) for path in making.folders],
        log:
            f"logs/{making.name}.log",
        priority: priority
        localrule: True
        conda:
            "../../envs/analysis.yaml"
        params:
            recipe=RERUNS.recipe((*making.outputs, *making.folders)[0]),
        message:
            message
        shell:
            "python -m workflow.make {params.recipe:q} 2> >(tee {log:q} >&2)"


rule analysis:
    input:
        MADE,
    localrule: True
    message:
        "everything is made that results give"
