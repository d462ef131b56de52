"""Results of somebody else, from an archive: snakemake --cores 1 --directory theirs all --config packed=FILE

read_packed  FILE -> FROM_ARCHIVE, the merged tables and similar files; everything else is made from them, and nothing is measured
"""

EVERYTHING = MADE_FROM_RESULTS


RERUNS.add(
    Making(
        "read_packed",
        programs=("workflow/scripts/read_packed.py", *DECLARED_TABLES),
        inputs=(PACKED,),
        outputs=tuple(paths.flat(FROM_ARCHIVE)),
    )
)


rule read_packed:
    input:
        RERUNS.inputs(paths.flat(FROM_ARCHIVE)[0]),
    output:
        FROM_ARCHIVE,
    log:
        "logs/read_packed.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        archive=lambda wildcards: PACKED,  # no wildcard, whatever its name holds
        marker=MARKER,
        recipe=RERUNS.recipe(paths.flat(FROM_ARCHIVE)[0]),
    message:
        "reading {params.archive}"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.read_packed --archive {params.archive:q} --results results --marker {params.marker}"
        " 2> >(tee {log:q} >&2)"
