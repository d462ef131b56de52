"""Documents, figures and page: what people read.

answers        tables, a template per question -> results/answers/{a_forward_time,...,answers}.md
figures        tables -> results/figures/NAME.svg and .png
page           tables, documents, figures -> results/report.html
print_answers  results/answers/NAME.md -> NAME.tex, NAME.typ (config.yaml: formats) or, if asked for by name, NAME.pdf

Commands, which run whenever they are named:

compare        two folders of results -> results/comparison:
               snakemake compare --config before=DIR after=DIR fail_on=slower
doctor         prints what this machine can do: snakemake doctor
"""


rule answers:
    input:
        tables=parquet(*ANSWERED),
        templates=expand("{folder}/{name}.md.j2", folder=os.path.relpath(ROOT / "workflow/templates"), name=QUESTIONS),
        code=write_digest("answers", "workflow/scripts/answers.py", "workflow/templates/*.md.j2"),
    output:
        expand("results/answers/{name}.md", name=DOCUMENTS),
    log:
        "logs/answers.log",
    localrule: True
    script:
        "../scripts/answers.py"


rule figures:
    input:
        tables=parquet("runs", "timings", "phases", *SUMMARIES),
        code=write_digest("figures", "workflow/scripts/figures.py"),
    output:
        figure_files(FIGURES),
    log:
        "logs/figures.log",
    localrule: True
    params:
        figures=[*FIGURES, *STUDY_FIGURES],
    script:
        "../scripts/figures.py"


rule page:
    input:
        tables=parquet("runs", *["timings", "kernels", "time_lost"] * HAS_STEPS),
        documents=expand("results/answers/{name}.md", name=QUESTIONS),
        figures=figure_files([*FIGURES, *STUDY_FIGURES], ["svg"]),
        code=write_digest("page", "workflow/scripts/page.py", "workflow/templates/grid.*"),
    output:
        page="results/report.html",
    log:
        "logs/page.log",
    localrule: True
    params:
        run=SHOWN,
    script:
        "../scripts/page.py"


rule print_answers:
    input:
        document="results/answers/{document}.md",
        figures=figure_files([*FIGURES, *STUDY_FIGURES], ["png"]),
        code=write_digest("print_answers", "workflow/scripts/print.py"),
    output:
        "results/answers/{document}.{suffix}",
    log:
        "logs/print_{document}_{suffix}.log",
    wildcard_constraints:
        suffix="tex|typ|pdf",
    localrule: True
    script:
        "../scripts/print.py"


rule compare:
    log:
        "logs/compare.log",
    localrule: True
    params:
        options=json.dumps({"before": CONFIG.before, "after": CONFIG.after, "fail_on": CONFIG.fail_on}),
        output="results/comparison/comparison.md",
    script:
        "../scripts/compare.py"


rule doctor:
    input:
        plan=ancient(str(PLAN_FILE)),
    log:
        "logs/doctor.log",
    localrule: True
    shell:
        "python -m workflow.scripts.doctor {input.plan:q} 2>&1 | tee {log:q}"
