"""Says what this machine can do for the grid, what would fail, and roughly how long the grid takes.

    python -m workflow.scripts.doctor [results/plan/measurements.json]

Versions, devices and the planned measurements -> lines `ok|warning|missing  SUBJECT  text`
"""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec

from cs336_model import locks
from cs336_model.flops import forward_flops, known_shape
from cs336_model.spec import Spec
from workflow import freshness, runner

GIB = 2**30
TRY_TORCH = """
import json, os, time, torch
gpu = torch.cuda.is_available()
square, times = torch.rand(2048, 2048, device="cuda" if gpu else "cpu"), []
for _ in range(3):
    times.append(time.perf_counter())
    (square @ square).sum().item()
memory = torch.cuda.mem_get_info()[0] if gpu else os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
rate = 2 * 2048**3 / (times[2] - times[1])
print(json.dumps({"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": gpu, "free": memory, "rate": rate}))
"""
Line = tuple[str, str, str]  # word, subject, text


def main(plan: str = str(freshness.PLAN)) -> None:
    """Prints the lines. Without a plan of the grid, they do not say what memory and time it needs."""
    keys = msgspec.json.decode(Path(plan).read_bytes()) if Path(plan).exists() else {}
    specs = {path: msgspec.convert(key["spec"], Spec) for path, key in keys.items()}
    missing = [spec for path, spec in specs.items() if not Path(path).exists()]
    device, free = next((spec.device for spec in specs.values()), "auto"), shutil.disk_usage(".").free / GIB
    with locks.shared():  # nobody measures meanwhile
        done = subprocess.run([sys.executable, "-c", TRY_TORCH], capture_output=True, text=True, check=False)
    torch = {"gpu": False, "free": 0, "rate": 1e12, "error": (done.stderr.splitlines() or [""])[-1]}
    torch = msgspec.json.decode(done.stdout.splitlines()[-1]) if done.returncode == 0 else torch
    has_gpu = bool(freshness.find_gpus()[0]) and device != "cpu"
    packages = {one.name.lower().replace("_", "-"): one.version for one in importlib.metadata.distributions()}
    lines = [describe_gpu(device, torch), describe_torch(torch), describe_packages(packages)]
    lines += [describe_nsys(has_gpu, packages.get("nvtx")), describe_ncu(has_gpu)]
    lines += [("ok" if free > 5 else "warning", "disk", f"{free:.1f} GiB free; a capture takes about 1 to 20 MB")]
    lines += [estimate_memory([*specs.values()], torch), estimate_time(missing, len(specs), torch)]
    for word, subject, text in lines:
        print(f"{word:<8} {subject:<9} {text}")


def describe_gpu(device: str, torch: dict) -> Line:
    """Whether there is a GPU, and PyTorch can use it."""
    gpus, driver = freshness.find_gpus()
    if not gpus or device == "cpu":
        text = f"{gpus[0]}, not used, since device is cpu" if gpus else "none: the CPU is measured"
        return "missing" if device == "cuda" else "ok", "GPU", text
    if not torch["gpu"]:
        return "missing", "GPU", f"{gpus[0]}, which this PyTorch cannot use: install one built for the driver {driver}"
    return "ok", "GPU", f"{len(gpus)} × {gpus[0]}, driver {driver}"


def describe_torch(torch: dict) -> Line:
    """PyTorch and Python."""
    if "error" in torch:
        return "missing", "torch", f"it cannot be imported: {torch['error']}"
    return "ok", "torch", f"{torch['torch']}, CUDA {torch['cuda']}, Python {platform.python_version()}"


def describe_packages(installed: dict[str, str]) -> Line:
    """Whether what the pipeline requires is installed."""
    required = re.findall(r"^[\w-]+", (freshness.ROOT / "envs/requirements.txt").read_text(), re.MULTILINE)
    missing = [name for name in required if name.replace("_", "-") not in installed]
    text = f"{', '.join(missing)}: pip install -r envs/requirements.txt" if missing else "all that are required"
    return "missing" if missing else "ok", "packages", text


def describe_nsys(has_gpu: bool, nvtx: str | None) -> Line:
    """Whether nsys can capture, and its version can record ranges of this nvtx."""
    version = freshness.ask_version("nsys")
    if version is None:
        return "warning" if has_gpu else "ok", "nsys", "none on PATH: captures are those of PyTorch's profiler"
    if nvtx is None:
        return "missing", "nsys", f"{version}, which records no ranges without the package nvtx: pip install nvtx"
    if version < "2024.4" and tuple(map(int, re.findall(r"\d+", nvtx)[:3])) >= (0, 2, 12):
        text = f"{version}, which does not see nvtx {nvtx}: pip install 'nvtx<0.2.12', or a newer nsys"
        return "missing", "nsys", text
    return "ok", "nsys", f"{version}, nvtx {nvtx}"


def describe_ncu(has_gpu: bool) -> Line:
    """Whether kernels can be counted."""
    version, parameters = freshness.ask_version("ncu"), Path("/proc/driver/nvidia/params")
    if not has_gpu or version is None:
        return "warning" if has_gpu else "ok", "ncu", runner.NCU_MISSING if has_gpu else runner.NO_GPU
    if os.geteuid() != 0 and parameters.exists() and "RmProfilingAdminOnly: 1" in parameters.read_text():
        return "warning", "ncu", runner.NCU_REFUSALS["ERR_NVGPUCTRPERM"]
    return "ok", "ncu", version


def estimate_memory(specs: list[Spec], torch: dict) -> Line:
    """What is free, and what parameters, gradients and the state of AdamW of the largest run take."""
    needed = {}
    for spec in specs:
        if spec.mode and (shape := known_shape(spec)):
            vocab_size, _, d_model, layers, _, d_ff = shape
            bytes_each = {"forward": 4, "forward_backward": 8, "train_step": 16}[spec.mode]
            needed[spec.run] = bytes_each * d_model * (2 * vocab_size + layers * (4 * d_model + 3 * d_ff))
    text = f"{torch['free'] / GIB:.1f} GiB of the {'GPU' if torch['gpu'] else 'host'} free"
    if needed:
        run = max(needed, key=needed.__getitem__)
        text += f"; {run} needs {needed[run] / GIB:.1f} GiB without its activations"
    too_large = sum(size > torch["free"] for size in needed.values())
    return "warning" if too_large else "ok", "memory", text + f"; {too_large} runs need more" * bool(too_large)


def estimate_time(missing: list[Spec], count: int, torch: dict) -> Line:
    """Roughly how long the measurements take that are still missing."""
    seconds = 4.0 * len(missing) + sum(2 * len(spec.context_lengths) for spec in missing)
    seconds += sum(2 * spec.windows * spec.window_s for spec in missing if spec.stage == "energy")
    for spec in (spec for spec in missing if spec.mode):
        flops = (forward_flops(spec) or 0) * (1 if spec.mode == "forward" else 3)
        seconds += (spec.warmup_steps + spec.measured_steps) * flops / torch["rate"]
    done = f"{count - len(missing)} of {count} measurements are finished"
    return "ok", "time", f"{done}; the others take roughly {max(seconds / 60, 1):.0f} min" if missing else done


if __name__ == "__main__":
    main(*sys.argv[1:])
