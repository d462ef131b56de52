"""Whether a change made it faster.

compare  two folders of results -> results/comparison: snakemake compare --config before=DIR after=DIR [fail_on=slower]
"""


rule compare:
    log:
        "logs/compare.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        before=config.get("before", ""),
        after=config.get("after", ""),
        fail_on=config.get("fail_on", "nothing"),
    message:
        "comparing {params.before} with {params.after}"
    shell:
        "python -m workflow.scripts.compare --before={params.before:q} --after={params.after:q}"
        " --output results/comparison --fail-on {params.fail_on:q} 2>&1 | tee {log:q}"
