"""Further processes that time each run of a model, as a comparison needs them: timing: {processes: N}.

timing_again   the specification -> results/processes/NUMBER/RUN/timing.json: one more process, without a profiler
round          all results of one round but the last -> results/processes/NUMBER.done, for which the next round waits

The first round is results/runs/RUN/timing.json. All runs are timed once before any is timed again, so a GPU that warms
up or slows down does it for all alike. process_steps (analysis.smk) collects the times.
"""

# Only the first process of a run measures the accuracy.
FURTHER_CONFIG = config | {TIMING.name: config.get(TIMING.name, {}) | {"accuracy": False}}
FURTHER_SPECIFICATIONS = {
    name: specification_json(FURTHER_CONFIG, run, TIMING) for name, run in RUNS.items() if TIMING in run.stages
}
PROCESS_STEPS = ["results/processes/steps.csv", "results/processes/steps.parquet"] if PROCESS_COUNT > 1 else []


for number in range(2, PROCESS_COUNT + 1):
    for run_name in FURTHER_SPECIFICATIONS:
        add_measurement(
            TIMING,
            job_name=f"timing_again {number} {run_name}",
            folder=f"results/processes/{number}/{run_name}",
            specification_text=FURTHER_SPECIFICATIONS[run_name],
        )
    RERUNS.add_marker(
        f"round {number - 1}",
        inputs=paths.timings_of_round(number - 1, FURTHER_SPECIFICATIONS),
        output=f"results/processes/{number - 1}.done",
    )


rule timing_again:
    input:
        RERUNS.inputs(
            "results/processes/{number}/{run}/timing.json",
            after=lambda wildcards: [f"results/processes/{int(wildcards.number) - 1}.done"],
        ),
    output:
        result="results/processes/{number}/{run}/timing.json",
    log:
        "logs/{run}/timing-{number}.log",
    wildcard_constraints:
        number="[0-9]+",
    resources:
        gpu=RESOURCES.gpus,
        cpus_per_task=RESOURCES.cores,
        time_limit_s=config["time_limit_s"],
    params:
        stage=TIMING.name,
        specification=lambda wildcards: FURTHER_SPECIFICATIONS[wildcards.run],
        sources=SOURCE_DIGESTS[TIMING.name],
    message:
        "timing {wildcards.run}, process {wildcards.number}"
    shell:
        "python -m workflow.scripts measure --stage {params.stage} --specification {params.specification:q}"
        " --sources {params.sources} --output {output.result:q} --log {log:q} --time-limit-s {resources.time_limit_s}"


rule round:
    input:
        RERUNS.inputs("results/processes/{number}.done"),
    output:
        touch("results/processes/{number}.done"),
    wildcard_constraints:
        number="[0-9]+",
    localrule: True
    message:
        "every run is timed, round {wildcards.number}"
