"""One process per run and stage, alone on its GPU (without one, on its host) while it measures.

timing          -> results/runs/RUN/timing.json: seconds of every step and phase, without a profiler
timing_process  -> results/processes/NUMBER/RUN/timing.json: the same in a further process, for the spread between them
capture         -> capture.json, capture.sqlite (of further ranks capture_rank1.sqlite ...); of nsys also reports
memory          -> memory.json, memory_history.json.gz: every allocation (on a GPU also memory_snapshot.pickle)
energy          -> energy.json: joules of windows of steps
counters        -> counters.json, ncu.csv: what Nsight Compute counted
attention       -> attention.json: attention alone, of all context lengths

These rules have no inputs: a result is made again only if its key changes (workflow/freshness.py), not if a file is
touched. With threads: 0 several start together, also with --cores 1, and import while one measures; `measuring` bounds
them, of which the profiles have 24.
"""

import math

from workflow.freshness import find_gpus, list_sources

SOURCES = list_sources(CONFIG)
cores = len(os.sched_getaffinity(0))
at_once = 2 if cores < 8 else min(24, 3 + 3 * len(find_gpus()[0]))  # one measures on a GPU, others import or export
MEASURING = 24 // at_once
TIME_LIMIT_S = math.ceil(CONFIG.time_limit_s)


def wanted_key(path):
    """A function of wildcards: the wanted key of a result, as text."""

    def find_key(wildcards):
        result = path.format(**wildcards)
        if result not in PLAN:
            raise WorkflowError(f"{result} is no result of the grid {CONFIG.grid} in config.yaml")
        return PLAN[result]

    return find_key


def count_gpus(wildcards):
    """The GPUs that a job asks of a scheduler."""
    return 0 if CONFIG.device == "cpu" else RUNS[wildcards.run].gpus


rule timing:
    output:
        result="results/runs/{run}/timing.json",
    log:
        "logs/{run}/timing.log",
    params:
        key=wanted_key("results/runs/{run}/timing.json"),
        sources=SOURCES,
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    priority: 10
    message:
        "timing {wildcards.run}"
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --result {output.result:q}"


rule timing_process:
    output:
        result="results/processes/{process}/{run}/timing.json",
    log:
        "logs/{run}/timing_{process}.log",
    wildcard_constraints:
        process="[0-9]+",
    params:
        key=wanted_key("results/processes/{process}/{run}/timing.json"),
        sources=SOURCES,
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    priority: 9
    message:
        "timing {wildcards.run}, process {wildcards.process}"
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --result {output.result:q}"


rule capture:
    output:
        result="results/runs/{run}/capture.json",
        capture="results/runs/{run}/capture.sqlite",
    log:
        "logs/{run}/capture.log",
    params:
        key=wanted_key("results/runs/{run}/capture.json"),
        sources=SOURCES,
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    priority: 10
    message:
        "capturing {wildcards.run}"
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --result {output.result:q} --capture {output.capture:q}"


rule memory:
    output:
        result="results/runs/{run}/memory.json",
        history="results/runs/{run}/memory_history.json.gz",
    log:
        "logs/{run}/memory.log",
    params:
        key=wanted_key("results/runs/{run}/memory.json"),
        sources=SOURCES,
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    priority: 10
    message:
        "recording the memory of {wildcards.run}"
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --result {output.result:q} --capture {output.history:q}"


rule energy:
    output:
        result="results/runs/{run}/energy.json",
    log:
        "logs/{run}/energy.log",
    params:
        key=wanted_key("results/runs/{run}/energy.json"),
        sources=SOURCES,
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    priority: 10
    message:
        "measuring the energy of {wildcards.run}"
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --result {output.result:q}"


rule counters:
    output:
        result="results/runs/{run}/counters.json",
        counted="results/runs/{run}/ncu.csv",
    log:
        "logs/{run}/counters.log",
    params:
        key=wanted_key("results/runs/{run}/counters.json"),
        sources=SOURCES,
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    priority: 10
    message:
        "counting what the kernels of {wildcards.run} do"
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --result {output.result:q} --capture {output.counted:q}"


rule attention:
    output:
        result="results/runs/{run}/attention.json",
    log:
        "logs/{run}/attention.log",
    params:
        key=wanted_key("results/runs/{run}/attention.json"),
        sources=SOURCES,
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    priority: 10
    message:
        "measuring {wildcards.run}"
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --result {output.result:q}"
