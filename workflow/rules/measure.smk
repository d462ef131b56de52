"""The stages of runs, one rule for each; each leases its GPU while it measures.

timing    the specification -> results/runs/RUN/timing.json: every single time, without a profiler
capture   the specification -> results/runs/RUN/capture.json, capture.sqlite: the same program under nsys, or PyTorch's profiler
memory    the specification -> results/runs/RUN/memory.json, memory_history.json.gz, where asked for
energy    the specification -> results/runs/RUN/energy.json, where asked for
counters  the specification -> results/runs/RUN/counters.json, ncu.csv, where asked for
operator  the specification -> results/runs/RUN/operator.json: of attention alone, instead of all others

They are declared in profile_grid/stages/NAME/stage.py, listed in profile_grid/study/stages.py.
"""


onstart:
    gc.enable()  # common.smk disables it for planning, which is over
    hand_over_measurements(prioritize_longest(workflow))


for stage in STAGES:

    rule:
        name:
            stage.name
        input:
            RERUNS.inputs(f"results/runs/{{run}}/{stage.result_file}"),
        output:
            result=f"results/runs/{{run}}/{stage.result_file}",
            files=[f"results/runs/{{run}}/{name}" for name in stage.files],
        log:
            f"logs/{{run}}/{stage.name}.log",
        group:
            RESOURCES.group
        resources:
            gpu=RESOURCES.gpus,
            turn=1,  # profiles/slurm/config.yaml limits it, so that grouped jobs request the GPUs of one of them
            cpus_per_task=RESOURCES.cores,
            mem_mb=RESOURCES.memory_mb(stage),
            runtime=max_minutes(stage, config["time_limit_s"]),
            time_limit_s=config["time_limit_s"],
        params:
            stage=stage.name,
            specification=specification_of(stage),
            sources=SOURCE_DIGESTS[stage.name],
        message:
            f"{stage.name} {{wildcards.run}}"
        shell:
            "python -m workflow.scripts measure --stage {params.stage} --specification {params.specification:q}"
            " --sources {params.sources} --output {output.result:q} --log {log:q} --time-limit-s {resources.time_limit_s}"
