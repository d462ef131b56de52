"""The two processes of every run, one after another on the GPU.

timing   the specification -> results/runs/RUN/timing.json: every single time, without a profiler
capture  the specification -> results/runs/RUN/capture.json, capture.sqlite: the same program under nsys, or PyTorch's profiler
"""

TIMING_SOURCES = MEASURED_PROGRAM + sources(
    "profile_grid/measuring/measured_program.py",
    "profile_grid/measuring/processes.py",
    "profile_grid/measuring/supervisor.py",
    "workflow/scripts/timing.py",
)
CAPTURE_SOURCES = MEASURED_PROGRAM + sources(
    "profile_grid/measuring/capture.py",
    "profile_grid/measuring/capture_identity.py",
    "profile_grid/measuring/hidden_host.py",
    "profile_grid/measuring/measured_program.py",
    "profile_grid/measuring/nsys_capture.py",
    "profile_grid/measuring/nsys_profile.py",
    "profile_grid/measuring/processes.py",
    "profile_grid/measuring/supervisor.py",
    "workflow/scripts/capture.py",
)


onstart:
    count_measurements(job.rule.name for job in workflow.persistence.dag.needrun_jobs())


rule timing:
    output:
        "results/runs/{run}/timing.json",
    log:
        "logs/{run}/timing.log",
    conda:
        "../../envs/measure.yaml"
    resources:
        gpu=1,
        time_limit_s=config["time_limit_s"],
    params:
        specification=lambda wildcards: TIMINGS[wildcards.run],
        sources=digest(TIMING_SOURCES),
    message:
        "timing {wildcards.run}"
    shell:
        "python -m workflow.scripts.timing --specification {params.specification:q} --sources {params.sources}"
        " --output {output:q} --log {log:q} --time-limit-s {resources.time_limit_s}"


rule capture:
    output:
        json="results/runs/{run}/capture.json",
        sqlite="results/runs/{run}/capture.sqlite",
    log:
        "logs/{run}/capture.log",
    conda:
        "../../envs/measure.yaml"
    resources:
        gpu=1,
        time_limit_s=config["time_limit_s"],
    params:
        specification=lambda wildcards: CAPTURES[wildcards.run],
        sources=digest(CAPTURE_SOURCES),
    message:
        "capture {wildcards.run}"
    shell:
        "python -m workflow.scripts.capture --specification {params.specification:q} --sources {params.sources}"
        " --output {output.json:q} --log {log:q} --time-limit-s {resources.time_limit_s}"
