"""Why Nsight Compute counts nothing, in words of this project, with what removes the cause."""

from profile_grid.host.processes.job import INSTALL_NSYS, Problem

LACKS = "no counters: "
NO_GPU = Problem("no_gpu", f"{LACKS}kernels are counted on an NVIDIA GPU, and this grid is measured without one")
NO_NSYS = Problem("nsys_missing", f"{LACKS}they are joined to a capture of nsys, and none is on PATH; {INSTALL_NSYS}")
NO_NCU = Problem(
    "ncu_missing",
    f"{LACKS}there is no ncu on PATH; install Nsight Compute (https://developer.nvidia.com/nsight-compute, or the CUDA"
    " toolkit's nsight-compute package)",
)
NO_COUNTERS = Problem("no_counters", f"{LACKS}ncu ended well and counted no kernel")
NO_TABLE = Problem("no_table", f"{LACKS}the program ended well, and ncu wrote no table that can be read")
CRASHED = Problem(
    "crashed",
    f"{LACKS}the program crashed under ncu, where its model has fewer layers; see its log. If the model cannot run"
    ' with fewer layers, switch counters off: counters: {runs: ""}',
)
TIME_LIMIT = Problem("time_limit", f"{LACKS}ncu was killed at the time limit; raise time_limit_s")
REFUSALS = {  # by words of ncu
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


def refusal_in(output: str) -> Problem | None:
    """Why ncu refuses to count, by its output; None if it does not."""
    return next((problem for words, problem in REFUSALS.items() if words in output), None)
