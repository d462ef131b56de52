"""Made-up merged tables: a run is a list of kernels, everything else follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import pandas as pd

from cs336_model.program.variants.values import UNIT_ROUNDOFF
from profile_grid.stages.capture.tables import RANK_TABLES
from profile_grid.stages.energy.tables import study_tables as energy_tables
from profile_grid.stages.timing.tables import STATISTICS, explained_error
from profile_grid.study.dimensions import BY_KEY, KEYS, LEADING, run_name
from profile_grid.study.stages import CAPTURE, COUNTERS, MEMORY, NOT_ASKED, STAGES, TIMING
from profile_grid.tables.names import PROCESS_STATISTICS

KERNEL = ["step", "phase", "range", "kernel", "class", "launches", "total_ns", "mean_ns", "min_ns", "max_ns"]
PHASE = ["step", "phase", "wall_ns", "gpu_span_ns", "gpu_busy_ns", "kernel_ns", "kernels", "memop_ns", "memops"]
FINDING = ["code", "abstained", "gain_ms", "gain_percent", "sure", "message", "advice", "evidence", "located"]
RANGE = ["step", "phase", "range", "instances", "wall_ns", "gpu_time_ns", "kernels", "memop_time_ns", "memops"]
ERRORS = ["loss_error", "logits_error", "gradient_norm_error", "explained_error", "within_precision", "reason"]
LOSSES = pd.DataFrame(columns=["number", "loss"])
RANK_TIMES = pd.DataFrame(columns=["rank", "phase", *STATISTICS, *PROCESS_STATISTICS])
MODES = ("forward", "forward_backward", "train_step")
STATUS_OF_OTHERS = {one.status_column: NOT_ASKED for one in STAGES if one not in (TIMING, CAPTURE)}
SDPA = "block > attention > scaled dot product attention"

GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>(cutlass_80_simt_sgemm_256x128::Params)"
SCORES_GEMM = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x128_8x4_nt_align1>(Params)"
MUL = "void at::native::elementwise_kernel<128, 2, at::native::BinaryFunctor<float, float, float, MulFunctor>>(int, T3)"
SOFTMAX = "void softmax_warp_forward<float, float, float, 9, false, false>(float *, const float *, int, int, int)"
NORM = "void at::native::reduce_kernel<512, 1, at::native::MeanOps<float>>(T3)"
ADAM = "void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float>>(T1)"

H200 = {
    "backend": "nsys", "device": "cuda", "device_name": "NVIDIA H200", "gpu_uuid_sha256": "5f2a", "driver": "580.82",
    "cuda": "13.0", "torch": "2.11.0", "python": "3.12.3", "cpu_name": "Some CPU", "cores": 16, "threads": 16,
    "nsys": "2025.3.1",
}  # fmt: skip
CPU = {
    "backend": "torch", "device": "cpu", "device_name": "AMD EPYC 9754", "gpu_uuid_sha256": None, "driver": None,
    "cuda": None, "torch": "2.13.0+cpu", "python": "3.11.2", "cpu_name": "AMD EPYC 9754", "cores": 2,
    "threads": 2, "nsys": None,
}  # fmt: skip
SHAPES = {"small": (768, 12, 12), "large": (1280, 36, 20), "2.7B": (2560, 32, 32)}


@dataclass(frozen=True)
class Kernel:
    phase: str
    range: str
    name: str
    kernel_class: str
    launches: int
    time_us: float


@dataclass(frozen=True)
class Made:
    """One run: kernels of one step, and what differs from a complete run on an H200."""

    model: str = "small"
    context_length: int = 512
    mode: str = "forward"
    kernels: tuple[Kernel, ...] = ()
    steps: int = 3
    step_wall_ms: float = 12.0
    unprofiled_ms: float = 11.8
    unprofiled_std_ms: float = 0.1
    timing_status: str = "complete"
    capture_status: str = "complete"
    machine: dict = field(default_factory=lambda: H200)
    others: dict = field(default_factory=dict)
    precision: str = "fp32"
    batch_size: int = 4
    compile: str = "off"
    attention: str = "eager"
    checkpoint: str = "0"
    gpus: int = 1
    parallel: str = "none"
    optimizer: str = "adamw"
    compile_s: float = 0.0
    peak_allocated_bytes: int | None = None
    findings: tuple = ()
    processes: int = 1
    process_spread: float = 0.0

    @property
    def leading(self) -> dict:
        values = {key: getattr(self, key, BY_KEY[key].default) for key in KEYS}
        return {"run": run_name(values), **values}

    @property
    def name(self) -> str:
        return self.leading["run"]


def forward_kernels(matmul_us=8000.0, softmax_us=900.0, layers=12) -> tuple[Kernel, ...]:
    """A forward pass: matrix multiplies, softmax, norm, and the scale of the scores."""
    return (
        Kernel("forward", "block > feed-forward", GEMM, "gemm", 5 * layers, 0.8 * matmul_us),
        Kernel("forward", f"{SDPA} > computing attention scores", SCORES_GEMM, "gemm", layers, 0.1 * matmul_us),
        Kernel("forward", f"{SDPA} > final matmul", SCORES_GEMM, "gemm", layers, 0.1 * matmul_us),
        Kernel("forward", f"{SDPA} > mask and scale", MUL, "elementwise", 2 * layers, 600.0),
        Kernel("forward", f"{SDPA} > computing softmax", SOFTMAX, "softmax", layers, softmax_us),
        Kernel("forward", "block > norm", NORM, "reduction", 2 * layers, 300.0),
        Kernel("forward", "embedding", "[CUDA memcpy HtoD]", "memcpy", 1, 2.0),
    )


def training_kernels(mode: str, matmul_us=16000.0, elementwise_us=6000.0, optimizer_us=4000.0) -> tuple[Kernel, ...]:
    """What comes after the forward pass: loss, backward, and the optimizer in a training step."""
    kernels = (
        Kernel("loss", "", SOFTMAX, "softmax", 1, 200.0),
        Kernel("backward", "", GEMM, "gemm", 120, matmul_us),
        Kernel("backward", "", MUL, "elementwise", 200, elementwise_us),
    )
    optimizer = Kernel("optimizer", "", ADAM, "optimizer", 40, optimizer_us)
    return {"forward": (), "forward_backward": kernels, "train_step": (*kernels, optimizer)}[mode]


def grid(models=("small", "large"), contexts=(128, 512), modes=MODES, **changes) -> list[Made]:
    """Runs of a whole grid with times that grow with model and context."""
    runs = []
    for model in models:
        for context in contexts:
            scale = context / 512 * SHAPES[model][0] / 768
            for mode in modes:
                kernels = forward_kernels(8000 * scale, 900 * scale, SHAPES[model][1]) + training_kernels(mode)
                busy_ms = sum(kernel.time_us for kernel in kernels) / 1000
                made = Made(model, context, mode, kernels, step_wall_ms=busy_ms + 1, unprofiled_ms=busy_ms + 0.9)
                runs.append(Made(**{**vars(made), **changes}))
    return runs


def merged(runs: list[Made]) -> dict[str, pd.DataFrame]:
    """The merged tables of these runs."""
    rows = {"runs": [_run_row(run) for run in runs]}
    rows |= {name: [] for name in ("timings", "accuracy", "cost", "kernels", "phases", "ranges", "findings")}
    for run in runs:
        lead = list(run.leading.values())
        rows["accuracy"] += [[*lead, *row] for row in _accuracy(run)]
        rows["cost"] += [[*lead, stage, run.compile_s] for stage in ("timing", "capture")]
        rows["timings"] += [[*lead, *row] for row in _timings(run)]
        rows["findings"] += [[*lead, *row] for row in run.findings]
        for step in range(run.steps if run.capture_status == "complete" else 0):
            for name, make in (("kernels", _kernel_rows), ("phases", _phase_rows), ("ranges", _range_rows)):
                rows[name] += [[*lead, step, *row] for row in make(run, step)]
    columns = {"kernels": KERNEL, "phases": PHASE, "ranges": RANGE, "findings": FINDING}
    columns["timings"] = ["phase", *STATISTICS, *PROCESS_STATISTICS, "status"]
    columns |= {"accuracy": ERRORS, "cost": ["stage", "compile_s"]}
    tables = {name: pd.DataFrame(rows[name], columns=[*LEADING, *columns[name]]) for name in columns}
    return {"runs": pd.DataFrame(rows["runs"]).convert_dtypes(), **tables, **without_requests()}


def without_requests() -> dict[str, pd.DataFrame]:
    """The merged tables of runs that were asked for no further stage, and kept no times of single steps."""
    return {name: table.copy() for name, table in _without_requests().items()}


@cache
def _without_requests() -> dict[str, pd.DataFrame]:
    steps = pd.DataFrame({"phase": [], "step": [], "ms": []})
    tables = {"steps": steps, "warmup_steps": steps, "rank_times": RANK_TIMES, "losses": LOSSES}
    modules = (stage.load("tables") for stage in (MEMORY, COUNTERS))
    declared = [*RANK_TABLES, *(table for module in modules for table in module.TABLES)]
    tables |= {table.name: table.empty() for table in declared}
    leading = pd.DataFrame({name: pd.Series(dtype="object") for name in LEADING})
    led = {name: pd.concat([leading, table], axis=1) for name, table in tables.items()}
    return led | energy_tables([])


def _run_row(run: Made) -> dict:
    d_model, layers, heads = SHAPES.get(run.model, SHAPES["small"])
    absent = dict.fromkeys(("reason", "oom_during", "oom_requested_bytes", "oom_free_bytes", "oom_total_bytes", "note"))
    return {
        **run.leading, "d_model": d_model, "d_ff": 4 * d_model, "num_layers": layers,
        "num_heads": heads, "vocab_size": 10000, "steps_timed": 10 if run.timing_status == "complete" else 0,
        "processes_timed": run.processes if run.timing_status == "complete" else 0,
        "steps_captured": run.steps if run.capture_status == "complete" else 0, "timing_status": run.timing_status,
        "capture_status": run.capture_status, **STATUS_OF_OTHERS, "steps_warmed": 0, "head_dim": None,
        "device_total_bytes": None, "parameters": None,
        "peak_allocated_bytes": run.peak_allocated_bytes,
        "graphs": None if run.compile == "off" else 1, "graph_breaks": None if run.compile == "off" else 0,
        **absent, **run.machine, **run.others,
    }  # fmt: skip


def _timings(run: Made) -> list[list]:
    if run.timing_status != "complete":
        return [["step", 0, None, None, None, None, 0, None, run.timing_status]]
    mean, std, processes = run.unprofiled_ms, run.unprofiled_std_ms, run.processes
    times = [10 * processes, mean, std, mean - std, mean + std]
    return [["step", *times, processes, run.process_spread if processes > 1 else None, "complete"]]


def _accuracy(run: Made) -> list[list]:
    """Every error is two roundings."""
    if run.timing_status != "complete":
        return []
    error, explained = 2 * UNIT_ROUNDOFF[run.precision], explained_error(run.precision)
    return [[error, error, error if run.mode != "forward" else None, explained, True, None]]


def _kernel_rows(run: Made, step: int) -> list[list]:
    rows = []
    for kernel in run.kernels:
        total = int(kernel.time_us * 1000)
        each = total // kernel.launches
        rows.append(
            [kernel.phase, kernel.range, kernel.name, kernel.kernel_class, kernel.launches, total, each, each, each]
        )
    return rows


def _phase_rows(run: Made, step: int) -> list[list]:
    names = {"forward": ["forward"], "forward_backward": ["forward", "loss", "backward"]}
    phases = [*names.get(run.mode, ["forward", "loss", "backward", "optimizer"]), "synchronize"]
    wall = int(run.step_wall_ms * 1e6) + 1000 * step
    rows = [["step", wall, *_gpu(run.kernels)]]
    for phase in phases:
        gpu = _gpu([kernel for kernel in run.kernels if kernel.phase == phase])
        rows.append([phase, wall // len(phases), *gpu])
    return rows


def _gpu(kernels) -> list[int]:
    memory = [kernel for kernel in kernels if kernel.kernel_class in ("memcpy", "memset")]
    others = [kernel for kernel in kernels if kernel not in memory]
    kernel_ns, memop_ns = (sum(int(kernel.time_us * 1000) for kernel in some) for some in (others, memory))
    busy = kernel_ns + memop_ns
    return [busy, busy, kernel_ns, sum(k.launches for k in others), memop_ns, sum(k.launches for k in memory)]


def _range_rows(run: Made, step: int) -> list[list]:
    layers = SHAPES.get(run.model, SHAPES["small"])[1]
    rows = []
    for phase, path in dict.fromkeys((k.phase, prefix) for k in run.kernels for prefix in _prefixes(k.range)):
        own = [k for k in run.kernels if k.phase == phase and path in _prefixes(k.range)]
        _, _, kernel_ns, kernels, memop_ns, memops = _gpu(own)
        rows.append([phase, path, layers if "block" in path else 1, 1000, kernel_ns, kernels, memop_ns, memops])
    return rows


def _prefixes(path: str) -> list[str]:
    parts = path.split(" > ") if path else []
    return [" > ".join(parts[:length]) for length in range(len(parts) + 1)]
