"""Which files belong to this grid; included last, when all other jobs are known.

contents  -> results/contents.txt: every file but those of runs; removes what earlier grids left next to them
"""

FILES_OF_GRID = [CONTENTS, *RERUNS.files_made("results/runs/")]
RERUNS.add(
    Making(
        "contents",
        programs=("workflow/scripts/contents.py",),
        settings=digest_of_settings(FILES_OF_GRID),
        outputs=(CONTENTS,),
    ),
    also=lambda: leftover_reason(FILES_OF_GRID),
)


rule contents:
    input:
        RERUNS.inputs(CONTENTS),
    output:
        CONTENTS,
    log:
        "logs/contents.log",
    localrule: True
    conda:
        "../../envs/analysis.yaml"
    params:
        files=json.dumps(FILES_OF_GRID),
        recipe=RERUNS.recipe(CONTENTS),
    message:
        "the files of this grid"
    shell:
        "python -m workflow.make {params.recipe:q} workflow.scripts.contents --files {params.files:q} --output {output:q} 2> >(tee {log:q} >&2)"
