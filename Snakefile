"""The pipeline, at the root of the repository, where Snakemake looks first; its rules are in workflow/."""


include: "workflow/Snakefile"


rule everything:
    default_target: True
    input:
        rules.all.input,
    localrule: True
