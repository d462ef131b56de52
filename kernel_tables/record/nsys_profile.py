"""Which profiler this machine can use, and the command line of a capture under Nsight Systems."""

from collections.abc import Sequence
from pathlib import Path

from kernel_recorder.in_process.handover import NSYS, TORCH
from kernel_tables.reading import nsys

CUDA_CALLS = "cudaProfilerApi"  # the window is between cudaProfilerStart and cudaProfilerStop


def gpu_is_visible() -> bool:
    """Whether the NVIDIA driver shows a GPU, without importing torch."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def profiler_of_this_machine() -> str:
    """`nsys` if it is on PATH and there is a GPU; else `torch`."""
    return NSYS if nsys.find() is not None and gpu_is_visible() else TORCH


def profile_command(
    program: Sequence[str], report: Path, *, options: Sequence[str] = (), window: str | None = CUDA_CALLS
) -> list[str]:
    """`nsys profile` around a program; the report becomes `report`.nsys-rep.

    With a `window`, CUDA_CALLS or an NVTX range as "name@domain", only that is recorded, and the program goes on after
    it (the default, stop-shutdown, would end it). Sampling and context switches are off: they need rights that many
    hosts do not give, and no question here needs them. `options`, in long form, replace those of the same name.
    """
    named = {option.partition("=")[0] for option in options}
    defaults = ("--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--force-overwrite=true")
    command = ["nsys", "profile", *(option for option in defaults if option.partition("=")[0] not in named)]
    if window == CUDA_CALLS:
        command += [f"--capture-range={CUDA_CALLS}", "--capture-range-end=stop"]
    elif window:
        command += ["--capture-range=nvtx", f"--nvtx-capture={window}", "--capture-range-end=stop"]
        command += ["--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0"]  # else only registered texts are compared
    return [*command, f"--output={report}", *options, *program]
