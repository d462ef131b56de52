"""Whether the outputs are what the results give.

verify   makes every output again, compares it with the file on disk, and fails if a file differs: snakemake verify
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
