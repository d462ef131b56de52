"""Packs results for somebody else, who has neither the captures nor the machine.

pack  what is in results/ -> results.zip, or archive=FILE: snakemake pack [--config archive=FILE with_captures=true]
"""


rule pack:
    log:
        "logs/pack.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        archive=config.get("archive", "results.zip"),
        captures="--captures" if config.get("with_captures") else "",
    message:
        "packing results/ into {params.archive}"
    shell:
        "python -m workflow.scripts.pack --results results --output {params.archive:q} {params.captures} 2>&1 | tee {log:q}"
