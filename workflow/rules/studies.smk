"""Studies: each from merged tables to its own tables, and to a figure. None needs a GPU, or a capture.

time_lost           findings of captures -> time_lost: what each could save at most
precision           runs that differ in precision -> precision: GPU time and wall time beside those of fp32
compile             runs that differ in compile -> compile: GPU time, wall time, launches, the first step
attention_backends  runs that differ in attention -> attention_backends
memory_parts        recorded allocations -> memory_peak, memory_parts
checkpoint          runs that differ in checkpoint -> checkpoint
warmup              steps before those that are measured -> warmup_enough
counters_study      counted kernels -> counter_kernels: what limits each
energy_study        windows of the counter of energy -> energy: joules of a step and of a token
communication       steps of several ranks -> communication_times, communication_scaling
attention_sweep     cells of attention alone -> attention_sweep

Tables are results/tables/NAME.parquet and .csv, figures results/figures/NAME.svg and .png. A study is made if the
grid asks its question: STUDY_FILES is what rule all wants.
"""


rule time_lost:
    input:
        tables=table_files(["findings", "runs", "timings", "phases"], suffixes=["parquet"]),
        code=write_digest("time_lost", "workflow/scripts/time_lost.py", "workflow/columns.yaml"),
    output:
        table_files(["time_lost"]),
    log:
        "logs/time_lost.log",
    localrule: True
    message:
        "what findings could save"
    script:
        "../scripts/time_lost.py"


rule precision:
    input:
        tables=table_files(["runs", "timings", "phases", "kernels"], suffixes=["parquet"]),
        code=write_digest("precision", "workflow/scripts/precision.py", "workflow/columns.yaml"),
    output:
        table_files(["precision"]),
        figure_files(["precision"]),
    log:
        "logs/precision.log",
    localrule: True
    message:
        "what lower precision gains"
    script:
        "../scripts/precision.py"


rule compile:
    input:
        tables=table_files(["runs", "timings", "phases", "kernels"], suffixes=["parquet"]),
        code=write_digest("compile", "workflow/scripts/compile.py", "workflow/columns.yaml"),
    output:
        table_files(["compile"]),
        figure_files(["compile"]),
    log:
        "logs/compile.log",
    localrule: True
    message:
        "what compilation gains"
    script:
        "../scripts/compile.py"


rule attention_backends:
    input:
        tables=table_files(["runs", "steps", "timings", "phases", "kernels"], suffixes=["parquet"]),
        code=write_digest("attention_backends", "workflow/scripts/attention_backends.py", "workflow/columns.yaml"),
    output:
        table_files(["attention_backends"]),
        figure_files(["attention_backends"]),
    log:
        "logs/attention_backends.log",
    localrule: True
    message:
        "which attention is fastest"
    script:
        "../scripts/attention_backends.py"


rule memory_parts:
    input:
        tables=table_files(["runs", "memory_phases", "memory_activations", "memory_timeline"], suffixes=["parquet"]),
        code=write_digest("memory_parts", "workflow/scripts/memory_parts.py", "workflow/columns.yaml"),
    output:
        table_files(["memory_peak", "memory_parts"]),
        figure_files(["memory_timeline"]),
    log:
        "logs/memory_parts.log",
    localrule: True
    message:
        "what memory is for"
    script:
        "../scripts/memory_parts.py"


rule checkpoint:
    input:
        tables=table_files(
            ["runs", "timings", "steps", "phases", "kernels", "memory_totals", "memory_activations"],
            suffixes=["parquet"],
        ),
        code=write_digest("checkpoint", "workflow/scripts/checkpoint.py", "workflow/columns.yaml"),
    output:
        table_files(["checkpoint"]),
        figure_files(["checkpoint"]),
    log:
        "logs/checkpoint.log",
    localrule: True
    message:
        "what checkpoints save and cost"
    script:
        "../scripts/checkpoint.py"


rule warmup:
    input:
        tables=table_files(["warmup_steps", "steps", "runs"], suffixes=["parquet"]),
        code=write_digest("warmup", "workflow/scripts/warmup.py", "workflow/columns.yaml"),
    output:
        table_files(["warmup_enough"]),
        figure_files(["warmup"]),
    log:
        "logs/warmup.log",
    localrule: True
    message:
        "how many warm-up steps are enough"
    script:
        "../scripts/warmup.py"


rule counters_study:
    input:
        tables=table_files(["counters", "runs", "phases"], suffixes=["parquet"]),
        code=write_digest("counters_study", "workflow/scripts/counters.py", "workflow/columns.yaml"),
    output:
        table_files(["counter_kernels"]),
        figure_files(["measured_roofline"]),
    log:
        "logs/counters_study.log",
    localrule: True
    message:
        "how near kernels are to the roof"
    script:
        "../scripts/counters.py"


rule energy_study:
    input:
        tables=table_files(["energy_windows", "runs", "phases"], suffixes=["parquet"]),
        code=write_digest("energy_study", "workflow/scripts/energy.py", "workflow/columns.yaml"),
    output:
        table_files(["energy"]),
        figure_files(["energy"]),
    log:
        "logs/energy_study.log",
    localrule: True
    message:
        "the energy of a step and a token"
    script:
        "../scripts/energy.py"


rule communication:
    input:
        tables=table_files(["runs", "timings", "communication_steps"], suffixes=["parquet"]),
        code=write_digest("communication", "workflow/scripts/communication.py", "workflow/columns.yaml"),
    output:
        table_files(["communication_times", "communication_scaling"]),
        figure_files(["communication"]),
    log:
        "logs/communication.log",
    localrule: True
    message:
        "what communication costs"
    script:
        "../scripts/communication.py"


rule attention_sweep:
    input:
        tables=table_files(["attention_cells", "runs"], suffixes=["parquet"]),
        code=write_digest("attention_sweep", "workflow/scripts/attention_sweep.py", "workflow/columns.yaml"),
    output:
        table_files(["attention_sweep"]),
        figure_files(["attention_sweep"]),
    log:
        "logs/attention_sweep.log",
    localrule: True
    message:
        "attention alone by head size and context length"
    script:
        "../scripts/attention_sweep.py"
