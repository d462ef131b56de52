"""Studies: each from merged tables to its own tables, and to a figure. None needs a GPU, or a capture.

time_lost       findings of captures -> time_lost: what each could save at most
speed_ups       runs that differ in one value -> speed_ups: GPU time and wall time beside those of the default
memory_parts    recorded allocations -> memory_peak
counters_study  counted kernels -> counter_kernels: what limits each
energy_study    windows of the counter of energy -> energy: joules of a step and of a token
communication   steps of several ranks -> communication_times, communication_scaling
attention_sweep cells of attention alone -> attention_sweep

Tables are results/tables/NAME.parquet and .csv, figures results/figures/NAME.svg and .png. A study is made if the
grid asks its question: STUDIES in workflow/grid.py.
"""


rule time_lost:
    input:
        tables=parquet("findings", "runs", "timings", "phases"),
        code=write_digest("time_lost", "workflow/scripts/time_lost.py"),
    output:
        table_files(["time_lost"]),
    log:
        "logs/time_lost.log",
    localrule: True
    script:
        "../scripts/time_lost.py"


rule speed_ups:
    input:
        tables=parquet("runs", "timings", "phases", "kernels"),
        code=write_digest("speed_ups", "workflow/scripts/speed_ups.py"),
    output:
        table_files(["speed_ups"]),
        figure_files(SPEED_UPS),
    log:
        "logs/speed_ups.log",
    localrule: True
    script:
        "../scripts/speed_ups.py"


rule memory_parts:
    input:
        tables=parquet("runs", "memory_phases", "memory_timeline"),
        code=write_digest("memory_parts", "workflow/scripts/memory_parts.py"),
    output:
        table_files(["memory_peak"]),
        figure_files(["memory_timeline"]),
    log:
        "logs/memory_parts.log",
    localrule: True
    script:
        "../scripts/memory_parts.py"


rule counters_study:
    input:
        tables=parquet("counters", "runs", "phases"),
        code=write_digest("counters_study", "workflow/scripts/counters.py"),
    output:
        table_files(["counter_kernels"]),
        figure_files(["measured_roofline"]),
    log:
        "logs/counters_study.log",
    localrule: True
    script:
        "../scripts/counters.py"


rule energy_study:
    input:
        tables=parquet("energy_windows", "runs", "phases"),
        code=write_digest("energy_study", "workflow/scripts/energy.py"),
    output:
        table_files(["energy"]),
        figure_files(["energy"]),
    log:
        "logs/energy_study.log",
    localrule: True
    script:
        "../scripts/energy.py"


rule communication:
    input:
        tables=parquet("runs", "timings", "communication_steps"),
        code=write_digest("communication", "workflow/scripts/communication.py"),
    output:
        table_files(["communication_times", "communication_scaling"]),
        figure_files(["communication"]),
    log:
        "logs/communication.log",
    localrule: True
    script:
        "../scripts/communication.py"


rule attention_sweep:
    input:
        tables=parquet("attention_cells", "runs"),
        code=write_digest("attention_sweep", "workflow/scripts/attention_sweep.py"),
    output:
        table_files(["attention_sweep"]),
        figure_files(["attention_sweep"]),
    log:
        "logs/attention_sweep.log",
    localrule: True
    script:
        "../scripts/attention_sweep.py"
