"""Results of somebody else, from an archive: snakemake --cores 1 --directory theirs all --config packed=FILE

read_packed  FILE -> FROM_ARCHIVE, the merged tables and their like; all else is made from them, and nothing is measured
"""

EVERYTHING = MADE_FROM_RESULTS


rule read_packed:
    input:
        archive=lambda wildcards: PACKED,  # no wildcard, whatever its name holds
        sources=program_sources("workflow/scripts/read_packed.py", *DECLARED_TABLES),
    output:
        FROM_ARCHIVE,
    log:
        "logs/read_packed.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        marker=PACKED_MARKER,
    message:
        "reading {input.archive}"
    shell:
        "python -m workflow.scripts.read_packed --archive {input.archive:q} --results results --marker {params.marker}"
        " 2> >(tee {log:q} >&2)"
