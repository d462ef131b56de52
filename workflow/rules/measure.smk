"""The two processes of every run, one after another on the GPU.

timing   the specification -> results/runs/RUN/timing.json: every single time, without a profiler
capture  the specification -> results/runs/RUN/capture.json, capture.sqlite: the same program under nsys, or PyTorch's profiler
"""


rule timing:
    message:
        "timing {wildcards.run}"
    input:
        PROGRAM,
        sources("profile_grid/processes.py", "workflow/scripts/timing.py"),
    output:
        "results/runs/{run}/timing.json",
    log:
        "logs/{run}/timing.log",
    params:
        specification=lambda wildcards: TIMINGS[wildcards.run],
    resources:
        gpu=1,
        time_limit_s=config["time_limit_s"],
    conda:
        "../../envs/measure.yaml"
    shell:
        "{PYTHON}.timing --specification {params.specification:q} --output {output:q} --log {log:q}"
        " --time-limit-s {resources.time_limit_s}"


rule capture:
    message:
        "capture {wildcards.run}"
    input:
        PROGRAM,
        sources("profile_grid/processes.py", "profile_grid/capture.py", "workflow/scripts/capture.py"),
    output:
        json="results/runs/{run}/capture.json",
        sqlite="results/runs/{run}/capture.sqlite",
    log:
        "logs/{run}/capture.log",
    params:
        specification=lambda wildcards: CAPTURES[wildcards.run],
    resources:
        gpu=1,
        time_limit_s=config["time_limit_s"],
    conda:
        "../../envs/measure.yaml"
    shell:
        "{PYTHON}.capture --specification {params.specification:q} --output {output.json:q} --log {log:q}"
        " --time-limit-s {resources.time_limit_s}"
