"""The pipeline from the root of the repository, where Snakemake and its profiles look first; its rules are in workflow/."""


include: "workflow/Snakefile"


rule everything:
    default_target: True
    input:
        rules.all.input,
    localrule: True
    message:
        "all documents are made"
