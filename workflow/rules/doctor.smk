"""What this machine can do for the grid, in ten lines.

doctor   prints them, each time it is asked for: snakemake doctor
machine  -> results/machine.txt: the same, once, and before anything is measured

No measurement depends on them, so a new look at the machine makes no result stale; their priority puts them first.
Where they fail, the measurements go on, since most causes leave something to measure.
"""


rule doctor:
    log:
        "logs/doctor.log",
    conda:
        "../../envs/measure.yaml"
    resources:
        gpu=1,
        time_limit_s=config["time_limit_s"],
    params:
        config=grid_part(config),
    message:
        "what this machine can do"
    shell:
        "python -m workflow.scripts.doctor --config {params.config:q} --runs results/runs --time-limit-s {resources.time_limit_s} 2>&1 | tee {log:q}"


rule machine:
    output:
        "results/machine.txt",
    log:
        "logs/machine.log",
    priority: FIRST
    conda:
        "../../envs/measure.yaml"
    resources:
        gpu=int(config["device"] != "cpu"),
        time_limit_s=config["time_limit_s"],
    params:
        program=program_of(config)["constructor"],
        device=config["device"],
        backend=config["capture"]["backend"],
        # a parameter that knows the output is no reason to run again: another grid needs no other look at the machine
        config=lambda wildcards, output: grid_part(config),
    message:
        "what this machine can do"
    shell:
        "python -m workflow.scripts.doctor --config {params.config:q} --runs results/runs --time-limit-s {resources.time_limit_s} --output {output:q} 2>&1"
        " | tee {log:q}"
