"""Why Nsight Compute counts nothing, in words of our own with what removes the cause."""

from __future__ import annotations

from profile_grid.host.processes.problems import Problem

LACKS = "no counters: "
NO_GPU = Problem("no_gpu", f"{LACKS}kernels are counted on an NVIDIA GPU, and this grid is measured without one")
NO_NSYS = Problem(
    "nsys_missing",
    f"{LACKS}they are joined to a capture of nsys, and there is none on PATH; install Nsight Systems"
    " (https://developer.nvidia.com/nsight-systems, or the CUDA toolkit's nsight-systems package)",
)
NO_NCU = Problem(
    "ncu_missing",
    f"{LACKS}there is no ncu on PATH; install Nsight Compute (https://developer.nvidia.com/nsight-compute, or the CUDA"
    " toolkit's nsight-compute package)",
)
NO_COUNTERS = Problem("no_counters", f"{LACKS}ncu ended well and counted no kernel")
NO_TABLE = Problem("no_table", f"{LACKS}the program ended well, and ncu wrote no table that can be read")
CRASHED = Problem(
    "crashed",
    f"{LACKS}the program crashed under ncu, where its model has fewer layers; see its log, and leave it out"
    ' with counters: {runs: ""} where the model cannot be run so',
)
TIME_LIMIT = Problem("time_limit", f"{LACKS}ncu was ended at the time limit; raise time_limit_s")
REFUSALS = {  # by what ncu says
    "ERR_NVGPUCTRPERM": Problem(
        "no_permission",
        f"{LACKS}the NVIDIA driver lets only administrators read them (ERR_NVGPUCTRPERM); have the host's"
        " administrator load it with NVreg_RestrictProfilingToAdminUsers=0, or run with CAP_SYS_ADMIN"
        " (https://developer.nvidia.com/ERR_NVGPUCTRPERM)",
    ),
    "driver resource was unavailable": Problem(
        "counters_in_use",
        f"{LACKS}another tool reads them, such as DCGM; pause it (dcgmi profiling --pause)",
    ),
    "Profiling is not supported on device": Problem(
        "gpu_not_supported",
        f"{LACKS}ncu does not know this GPU, or a hypervisor hides its counters; try a newer Nsight Compute, or a host"
        " without virtual GPUs",
    ),
}


def problem_of(said: str) -> Problem | None:
    """What ncu refuses, by what it said; None where it refuses nothing."""
    return next((problem for words, problem in REFUSALS.items() if words in said), None)
