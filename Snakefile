"""Where the time of a Transformer goes on a GPU: from the grid in config.yaml to the documents that answer this.

config.yaml -> timing, capture (each alone on its GPU) -> tables per run -> merged tables -> answers, figures, page
"""

from snakemake.utils import min_version

min_version("9.0")


report: "workflow/report/workflow.rst"


include: "workflow/rules/root.smk"
include: "workflow/rules/common.smk"
include: "workflow/rules/commands.smk"
include: "workflow/rules/measure.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/processes.smk"
include: "workflow/rules/documents.smk"
include: "workflow/rules/analysis.smk"


remember_sources()


rule all:
    default_target: True
    input:
        EVERYTHING,
    localrule: True
    message:
        "everything is made"
