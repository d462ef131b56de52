"""Whether a change made the program faster.

compare  two folders of results -> results/comparison: snakemake compare --config before=DIR after=DIR [fail_on=slower];
         or a study's runs and those at the default of its dimension: after=DIR varies=precision
"""


rule compare:
    log:
        "logs/compare.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        before=config.get("before", ""),
        after=config.get("after", ""),
        varies=config.get("varies", ""),
        fail_on=config.get("fail_on", "nothing"),
    message:
        "comparing {params.after} with {params.before}{params.varies}"
    shell:
        "python -m workflow.scripts.compare --before={params.before:q} --after={params.after:q} --varies={params.varies:q}"
        " --output results/comparison --fail-on {params.fail_on:q} 2>&1 | tee {log:q}"
