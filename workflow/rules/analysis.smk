"""A rule for each job of the analysis; included last, when all of them are known.

complete       fails, with the reasons, while a run of the grid is incomplete; every document is made before it
process_steps  the timings of all rounds (processes.smk) but the first -> results/processes/steps.csv, .parquet
"""

SHARED_OUTPUTS = [*(path for job, *_ in ANALYSIS_RULES for path in job.outputs), *PRINTED_DOCUMENTS]
# Every file is requested by name, since Snakemake does not notice a deleted intermediate file. Of the tables of runs, the
# status files are enough: the input functions of their jobs notice other missing files.
EVERYTHING = [
    "results/machine.txt",
    "results/complete.json",
    *paths.run_files(RUNS, lambda stage: stage.result_file),
    *paths.run_files(RUNS, lambda stage: stage.status_file),
    *SHARED_OUTPUTS,
    *PROCESS_STEPS,
]
add_analysis(
    "complete",
    "looking for runs that are incomplete",
    ["--runs=results/tables/runs.parquet", "--output=results/complete.json"],
    inputs=["results/tables/runs.parquet"],
    outputs=["results/complete.json"],
    after=SHARED_OUTPUTS,
)
if PROCESS_STEPS:
    add_analysis(
        "process_steps",
        "times of all processes",
        [f"--plan={GRID_PLAN}", "--folder=results/processes", f"--processes={PROCESS_COUNT}"],
        inputs=[GRID_PLAN, *paths.further_timings(PROCESS_COUNT, RUNS)],
        outputs=PROCESS_STEPS,
    )


for job, message, after, priority in ANALYSIS_RULES:

    rule:
        name:
            job.name
        input:
            # `after=after` binds this job's files: Snakemake calls the function when the loop is over
            RERUNS.inputs(job.outputs[0], after=lambda wildcards, after=after: after),
        output:
            [in_report(path) for path in job.outputs],
        log:
            f"logs/{job.name}.log",
        priority: priority
        localrule: True
        params:
            recipe=RERUNS.recipe(job.outputs[0]),
        message:
            message
        shell:
            "python -m workflow.make {params.recipe:q} 2> >(tee {log:q} >&2)"
