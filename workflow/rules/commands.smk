"""Commands: rules that only run when they are named, and the look at the machine before everything else.

compare  two folders of results -> results/comparison: snakemake compare --config before=DIR after=DIR [fail_on=slower]
doctor   prints what this machine can do for the grid, each time it is asked for: snakemake doctor
machine  -> results/machine.txt: the same, once, and before anything is measured

With after=DIR varies=precision, compare takes the runs of one study and those at the default of its dimension.

No measurement depends on the look at the machine, so a new one makes no result stale; its priority puts it first. Where
it fails, the measurements go on, since most causes leave something to measure.
"""


rule compare:
    log:
        "logs/compare.log",
    params:
        before=config.get("before", ""),
        after=config.get("after", ""),
        varies=config.get("varies", ""),
        fail_on=config.get("fail_on", "nothing"),
    message:
        "comparing {params.after} with {params.before}{params.varies}"
    shell:
        "python -m workflow.scripts compare --before={params.before:q} --after={params.after:q} --varies={params.varies:q}"
        " --output results/comparison --fail-on {params.fail_on:q} 2>&1 | tee {log:q}"


rule doctor:
    log:
        "logs/doctor.log",
    resources:
        gpu=1,
        time_limit_s=config["time_limit_s"],
    params:
        config=grid_settings_json(config),
    message:
        "what this machine can do"
    shell:
        "python -m workflow.scripts doctor --config {params.config:q} --runs results/runs --time-limit-s {resources.time_limit_s} 2>&1 | tee {log:q}"


rule machine:
    output:
        "results/machine.txt",
    log:
        "logs/machine.log",
    priority: FIRST_PRIORITY
    resources:
        gpu=int(config["device"] != "cpu"),
        time_limit_s=config["time_limit_s"],
    params:
        # These only make Snakemake run the rule again if they change.
        program=program_of(config)["constructor"],
        device=config["device"],
        backend=config["capture"]["backend"],
        # Snakemake does not compare a parameter that depends on the output: another grid is no reason to check again
        config=lambda wildcards, output: grid_settings_json(config),
    message:
        "what this machine can do"
    shell:
        "python -m workflow.scripts doctor --config {params.config:q} --runs results/runs --time-limit-s {resources.time_limit_s} --output {output:q} 2>&1"
        " | tee {log:q}"
