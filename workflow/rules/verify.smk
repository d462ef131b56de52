"""Whether the tables are what the captures give.

verify   makes every table anew, compares it with the one on disk, and fails where one differs: snakemake verify
"""


rule verify:
    log:
        "logs/verify.log",
    conda:
        "../../envs/analysis.yaml"
    params:
        config=grid_part(config),
        kernel_classes=json.dumps(config.get("kernel_classes", [])),
    message:
        "comparing the tables with their captures"
    shell:
        "python -m workflow.scripts.verify --config {params.config:q} --kernel-classes {params.kernel_classes:q}"
        " --results results 2>&1 | tee {log:q}"
