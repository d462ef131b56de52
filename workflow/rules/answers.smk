"""Documents, figures and page: what people read.

answers        tables, a template per question -> results/answers/{a_forward_time,...,answers}.md
figures        tables -> results/figures/NAME.svg and .png
page           tables, documents, figures, the capture of one run -> results/report.html, results/page/trace.json.gz
print_answers  results/answers/NAME.md -> NAME.tex, NAME.typ (config.yaml: formats) or, if asked for by name, NAME.pdf

Commands, which run whenever they are named:

compare        two folders of results -> results/comparison:
               snakemake compare --config before=DIR after=DIR fail_on=slower
doctor         prints what this machine can do: snakemake doctor
"""


rule answers:
    input:
        tables=table_files(ANSWERED, suffixes=["parquet"]),
        templates=expand("{folder}/{name}.md.j2", folder=os.path.relpath(ROOT / "workflow/templates"), name=QUESTIONS),
        code=write_digest(
            "answers",
            "workflow/scripts/answers.py",
            "workflow/columns.yaml",
            *[path for path in TEMPLATES if path.endswith(".md.j2")],
        ),
    output:
        expand("results/answers/{name}.md", name=DOCUMENTS),
    log:
        "logs/answers.log",
    localrule: True
    message:
        "answers to {} questions".format(len(QUESTIONS))
    script:
        "../scripts/answers.py"


rule figures:
    input:
        tables=table_files(["runs", "timings", "phases", *SUMMARIES], suffixes=["parquet"]),
        code=write_digest("figures", "workflow/scripts/figures.py", "workflow/columns.yaml"),
    output:
        figure_files(FIGURES),
    log:
        "logs/figures.log",
    localrule: True
    params:
        figures=[*FIGURES, *STUDY_FIGURES],
    message:
        "figures of the questions (a) to (e)"
    script:
        "../scripts/figures.py"


rule page:
    input:
        **({"capture": f"results/runs/{SHOWN}/capture.sqlite"} if SHOWN else {}),
        tables=table_files(["runs", *["timings", "kernels", "time_lost"] * HAS_STEPS], suffixes=["parquet"]),
        documents=expand("results/answers/{name}.md", name=QUESTIONS),
        figures=figure_files([*FIGURES, *STUDY_FIGURES], ["svg"]),
        code=write_digest(
            "page",
            "workflow/scripts/page.py",
            "workflow/columns.yaml",
            *[path for path in TEMPLATES if "grid." in path],
            settings=CLASSES,
        ),
    output:
        page="results/report.html",
        trace="results/page/trace.json.gz",
    log:
        "logs/page.log",
    localrule: True
    params:
        run=SHOWN,
        classes=CLASSES,
    message:
        "the page"
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
    message:
        "{wildcards.document}.{wildcards.suffix}"
    script:
        "../scripts/print.py"


rule compare:
    log:
        "logs/compare.log",
    localrule: True
    params:
        options=json.dumps(
            {"before": CONFIG.before, "after": CONFIG.after, "varies": CONFIG.varies, "fail_on": CONFIG.fail_on}
        ),
        output="results/comparison/comparison.md",
    message:
        "comparing two folders of results"
    script:
        "../scripts/compare.py"


rule doctor:
    input:
        plan=ancient(str(PLAN_FILE)),
    log:
        "logs/doctor.log",
    localrule: True
    message:
        "what this machine can do"
    shell:
        "python -m workflow.scripts.doctor {input.plan:q} 2>&1 | tee {log:q}"
