"""Says what this machine can do for the grid, what would fail, and roughly how long the grid takes.

    python -m workflow.scripts.doctor results/plan/measurements.json

Versions, devices and the planned measurements -> lines `ok|warning|missing  SUBJECT  text`
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import msgspec

from cs336_model import locks
from cs336_model.spec import Spec, forward_flops
from workflow import freshness, runner

TRY_TORCH = """
import time, torch
gpu = torch.cuda.is_available()
square, times = torch.rand(2048, 2048, device="cuda" if gpu else "cpu"), []
for _ in range(3):
    times.append(time.perf_counter())
    (square @ square).sum().item()
free = f"{torch.cuda.mem_get_info()[0] / 2**30:.1f} GiB free on the GPU, " if gpu else ""
print(int(gpu), 2 * 2048**3 / (times[2] - times[1]), f"{free}{torch.__version__}, CUDA {torch.version.cuda}")
"""
Line = tuple[str, str, str]  # word, subject, text


def main(plan: str) -> None:
    """Prints the lines; `plan` is the file with the wanted keys."""
    keys = msgspec.json.decode(Path(plan).read_bytes())
    specs = {path: msgspec.convert(key["spec"], Spec) for path, key in keys.items()}
    missing = [spec for path, spec in specs.items() if not Path(path).exists()]
    device = next(iter(specs.values())).device
    has_gpu, free = bool(freshness.find_gpus()[0]) and device != "cpu", shutil.disk_usage(".").free / 2**30
    with locks.shared():  # nobody measures meanwhile
        done = subprocess.run([sys.executable, "-c", TRY_TORCH], capture_output=True, text=True, check=False)
    last = (done.stderr.splitlines() or ["?"])[-1]
    sees_gpu, rate, text = (done.stdout or f"0 1e12 it cannot be used: {last}").split(maxsplit=2)
    lines = [describe_gpu(device, sees_gpu == "1"), ("missing" if done.returncode else "ok", "torch", text.strip())]
    lines += [describe_nsys(has_gpu), describe_ncu(has_gpu)]
    lines += [("ok" if free > 5 else "warning", "disk", f"{free:.1f} GiB free; a capture takes about 1 to 20 MB")]
    lines += [("ok", "locks", f"{locks.LOCKS}, which all users of this host must share")]
    lines += [estimate_time(missing, len(specs), float(rate))]
    for word, subject, text in lines:
        print(f"{word:<8} {subject:<9} {text}")


def describe_gpu(device: str, torch_sees_it: bool) -> Line:
    gpus, driver = freshness.find_gpus()
    if not gpus or device == "cpu":
        word = {"cuda": "missing", "cpu": "ok"}.get(device, "warning")
        return word, "GPU", "none, or device is cpu: the CPU is measured (a grid for it: --config grid=cpu)"
    if not torch_sees_it:
        return "missing", "GPU", f"{gpus[0]}, which this PyTorch cannot use: install one built for the driver {driver}"
    return "ok", "GPU", f"{len(gpus)} × {gpus[0]}, driver {driver}"


def describe_nsys(has_gpu: bool) -> Line:
    """Whether nsys can capture, and its version can record ranges of this nvtx."""
    nsys = freshness.ask_version("nsys")
    if nsys is None:
        return "warning" if has_gpu else "ok", "nsys", "none on PATH: captures are those of PyTorch's profiler"
    nvtx = next((found.version for found in distributions(name="nvtx")), None)
    if nvtx is None:
        return "missing", "nsys", f"{nsys}, which records no ranges without the package nvtx: pip install nvtx"
    if nsys < "2024.4" and tuple(map(int, re.findall(r"\d+", nvtx)[:3])) >= (0, 2, 12):
        return "missing", "nsys", f"{nsys}, which does not see nvtx {nvtx}: pip install 'nvtx<0.2.12', or a newer nsys"
    return "ok", "nsys", f"{nsys}, nvtx {nvtx}"


def describe_ncu(has_gpu: bool) -> Line:
    ncu, parameters = freshness.ask_version("ncu"), Path("/proc/driver/nvidia/params")
    if not has_gpu or ncu is None:
        return "warning" if has_gpu else "ok", "ncu", runner.NCU_MISSING if has_gpu else runner.NO_GPU
    if os.geteuid() != 0 and parameters.exists() and "RmProfilingAdminOnly: 1" in parameters.read_text():
        return "warning", "ncu", runner.NCU_REFUSALS["ERR_NVGPUCTRPERM"]
    return "ok", "ncu", ncu


def estimate_time(missing: list[Spec], count: int, rate: float) -> Line:
    """Roughly how long the measurements take that are still missing, at a rate in FLOP/s."""
    seconds = 4.0 * len(missing) + sum(2 * spec.windows * spec.window_s for spec in missing if spec.stage == "energy")
    for spec in (spec for spec in missing if spec.mode):
        passes = (spec.warmup_steps + spec.measured_steps) * (1 if spec.mode == "forward" else 3)
        seconds += passes * (forward_flops(spec) or 0) / rate
    done = f"{count - len(missing)} of {count} measurements are finished"
    return "ok", "time", f"{done}; the others take roughly {seconds / 60:.0f} min"


if __name__ == "__main__":
    main(*sys.argv[1:])
