"""Whether all that is made from results is what they give.

verify   makes everything again in a folder of its own, compares it with what is on disk, and fails if a file differs:
         snakemake verify
"""


rule verify:
    log:
        "logs/verify.log",
    conda:
        "../../envs/analysis.yaml"
    threads: 64
    params:
        config=json.dumps(config),
        sources=json.dumps(SOURCES),
    message:
        "making everything again from the results"
    shell:
        "python -m workflow.scripts.verify --config {params.config:q} --sources {params.sources:q} --results results"
        " --cores {threads} 2>&1 | tee {log:q}"
