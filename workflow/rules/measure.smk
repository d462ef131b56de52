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
them, of which profiles/default has 24.
"""


rule timing:
    output:
        "results/runs/{run}/{stage,timing}.json",
    log:
        "logs/{run}/{stage}.log",
    priority: 10
    threads: 0
    resources:
        measuring=MEASURING,
        gpu=count_gpus,
        time_limit_s=TIME_LIMIT_S,
    params:
        key=wanted_key("results/runs/{run}/{stage}.json"),
        sources=SOURCES,
    shell:
        "exec python -m workflow.scripts.measure --key {params.key:q} --sources {params.sources:q}"
        " --time-limit {resources.time_limit_s} --log {log:q} --outputs {output:q}"


use rule timing as timing_process with:
    output:
        "results/processes/{process}/{run}/{stage,timing}.json",
    log:
        "logs/{run}/{stage}_{process}.log",
    priority: 9
    params:
        key=wanted_key("results/processes/{process}/{run}/{stage}.json"),


use rule timing as capture with:
    output:
        "results/runs/{run}/{stage,capture}.json",
        "results/runs/{run}/{stage}.sqlite",
    retries: 1


use rule timing as memory with:
    output:
        "results/runs/{run}/{stage,memory}.json",
        "results/runs/{run}/{stage}_history.json.gz",


use rule timing as energy with:
    output:
        "results/runs/{run}/{stage,energy}.json",


use rule timing as counters with:
    output:
        "results/runs/{run}/counters.json",
        "results/runs/{run}/ncu.csv",
    log:
        "logs/{run}/counters.log",
    params:
        key=wanted_key("results/runs/{run}/counters.json"),


use rule timing as attention with:
    output:
        "results/runs/{run}/{stage,attention}.json",
