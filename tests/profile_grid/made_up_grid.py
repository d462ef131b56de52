"""A made-up grid of 60 runs, from the shapes of the models and round rates: for figures and the page, never a result.

Times are FLOPs over a rate, or bytes over a bandwidth, and no kernel is shorter than two microseconds; the numbers are
only there to be drawn.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pandas as pd

from cs336_model import ranges
from cs336_model.arithmetic.flops import ModelShape, forward_bytes, forward_flops, parameter_count
from cs336_model.program.variants.values import UNIT_ROUNDOFF
from profile_grid.documents.summaries import Summaries
from profile_grid.stages.capture.step_tables import TABLES
from profile_grid.stages.timing.tables import explained_error
from profile_grid.study.catalogue import summary_names
from profile_grid.study.dimensions import KEYS, LEADING, run_name
from profile_grid.study.workloads import MODEL_STEPS
from tests.default_values import DEFAULT_VALUES
from tests.profile_grid.made_up import STATUS_OF_OTHERS, without_requests

MODELS = {  # d_model, d_ff, layers, heads
    "small": (768, 3072, 12, 12),
    "medium": (1024, 4096, 24, 16),
    "large": (1280, 5120, 36, 20),
    "xl": (1600, 6400, 48, 25),
    "2.7B": (2560, 10240, 32, 32),
}
CONTEXTS = (128, 256, 512, 1024)
MODES = ("forward", "forward_backward", "train_step")
STEPS = 3
FLOP_PER_S = {"fp32": 4.0e13, "bf16": 3.0e14}
BYTES_PER_S, SHORTEST_NS, LAUNCH_NS = 2.4e12, 2_000, 20_000
COLUMNS = {table.name: table.names for table in TABLES}
NAMES = {"phase", "range", "kernel", "class", "code", "sure", "message", "advice", "evidence", "located"}
HOSTILE = r"<script>alert(1)</script>|$\input{x}$"
SDPA = "block > attention > scaled dot product attention"
NATIVE = "void at::native::"
GEMM = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_{}_n_tilesize{}x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"
    "_execute_kernel__5x_cublas"
)
CUTLASS = "void cutlass::Kernel2<cutlass_80_simt_sgemm_{}_8x4_{}_align1>(T1::Params)"
LAMBDA = (
    "(at::TensorIteratorBase &)::[lambda() (instance 2)]::operator ()() const::[lambda() (instance 7)]::operator ()()"
    " const::[lambda(float) (instance 1)]"
)


TWO_MODELS = {"models": ("small", "medium"), "contexts": (128, 512)}
FOUR_WAYS = {"models": ("small",), "contexts": (128, 512), "precisions": ("fp32", "bf16"), "batch_sizes": (4, 8)}


def vectorized(functor: str) -> str:
    """The full name of a vectorised elementwise kernel."""
    return (
        f"{NATIVE}vectorized_elementwise_kernel<(int)4, {functor}, std::array<char *, (unsigned long)3>>(int, T2, T3)"
    )


ADD = vectorized("at::native::CUDAFunctor_add<float>")
MUL = vectorized("at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float>>")
COPY = f"{NATIVE}elementwise_kernel<(int)128, (int)2, {NATIVE}direct_copy_kernel_cuda{LAMBDA}>(int, T3)"
WHERE = f"{NATIVE}elementwise_kernel<(int)128, (int)2, {NATIVE}where_kernel_impl{LAMBDA}>(int, T3)"
EXP = vectorized(f"at::native::exp_kernel_cuda{LAMBDA}")
SIGMOID = vectorized(f"at::native::sigmoid_kernel_cuda{LAMBDA}")
SUM = f"{NATIVE}reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, sum_functor<float, float, float>>>(T3)"
SOFTMAX = "void softmax_warp_forward<float, float, float, (int)9, (bool)0, (bool)0>(float *, const float *, int, int)"
LOG_SOFTMAX = f"{NATIVE}cunn_SoftMaxForward<(int)4, float, float, float, LogSoftMaxForwardEpilogue>(T1, T2, int)"
GATHER = f"{NATIVE}vectorized_gather_kernel<(int)16, long>(char *, char *, T2 *, int, long, long, bool)"
ADAM = f"{NATIVE}multi_tensor_apply_kernel<TensorListMetadata<(int)4>, FusedAdamMathFunctor<float, (int)4>>(T1, T2, T3)"
TRITON = "triton_per_fused_div_exp_masked_fill_mul_sub_view_2"
FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>>(Flash_fwd_params)"
FILL = vectorized("at::native::FillFunctor<float>")

FORWARD = [  # part, range path, kernel, class, launches per layer (0: once), share of the part's time
    (ranges.EMBEDDING, "embedding", GATHER, "embedding", 0, 1.0),
    (ranges.NORM, "block > norm", SUM, "reduction", 2, 0.3),
    (ranges.NORM, "block > norm", MUL, "elementwise", 4, 0.7),
    (ranges.QKV_PROJECTION, "block > attention > qkv projection", GEMM.format("tn", "128x128"), "gemm", 3, 1.0),
    (ranges.ROPE, "block > attention > rope", MUL, "elementwise", 8, 0.6),
    (ranges.ROPE, "block > attention > rope", COPY, "elementwise/copy", 4, 0.4),
    (ranges.ATTENTION_SCORES, f"{SDPA} > computing attention scores", CUTLASS.format("128x128", "tn"), "gemm", 1, 1.0),
    (ranges.MASK_AND_SCALE, f"{SDPA} > mask and scale", MUL, "elementwise", 1, 0.5),
    (ranges.MASK_AND_SCALE, f"{SDPA} > mask and scale", WHERE, "elementwise", 1, 0.5),
    (ranges.SOFTMAX, f"{SDPA} > computing softmax", EXP, "elementwise", 1, 0.4),
    (ranges.SOFTMAX, f"{SDPA} > computing softmax", SOFTMAX, "softmax", 2, 0.6),
    (ranges.FINAL_MATMUL, f"{SDPA} > final matmul", CUTLASS.format("256x128", "nn"), "gemm", 1, 1.0),
    (ranges.OUTPUT_PROJECTION, "block > attention > output projection", GEMM.format("tn", "128x64"), "gemm", 1, 1.0),
    (ranges.RESIDUAL, "block > residual", ADD, "elementwise", 2, 1.0),
    (ranges.FEED_FORWARD, "block > feed-forward", CUTLASS.format("256x128", "nt"), "gemm", 3, 1.0),
    (ranges.ACTIVATION, "block > feed-forward > activation", SIGMOID, "elementwise/activation", 1, 0.5),
    (ranges.ACTIVATION, "block > feed-forward > activation", MUL, "elementwise", 1, 0.5),
    (ranges.HEAD, "head", CUTLASS.format("256x128", "tn"), "gemm", 0, 1.0),
]
BACKWARD = [  # kernel, class, launches per layer, share of twice the forward pass's time
    (CUTLASS.format("256x128", "nn"), "gemm", 7, 0.45),
    (GEMM.format("nt", "64x64"), "gemm", 7, 0.27),
    (MUL, "elementwise", 22, 0.12),
    (ADD, "elementwise", 18, 0.08),
    (SUM, "reduction", 6, 0.05),
    (FILL, "elementwise/fill", 9, 0.03),
]
MACHINE = {
    "backend": "nsys", "device": "cuda", "device_name": "NVIDIA H200", "gpu_uuid_sha256": "5f2a", "driver": "580.82",
    "cuda": "13.0", "torch": "2.11.0", "python": "3.12.3", "cpu_name": "Some CPU", "cores": 16, "threads": 16,
    "nsys": "2025.3.1",
}  # fmt: skip
OOM = {
    "timing_status": "out_of_memory", "capture_status": "out_of_memory", "reason": "CUDA out of memory",
    "oom_during": "initialise", "oom_requested_bytes": 2**31, "oom_free_bytes": 2**29, "oom_total_bytes": 140 * 2**30,
}  # fmt: skip
INCOMPLETE = {"capture_status": "incomplete", "reason": "no kernel table: nsys 2022.4 is too old for driver 580"}


def made_up_tables(
    models=tuple(MODELS), contexts=CONTEXTS, modes=MODES, machine=MACHINE, changes=None, hostile=False,
    precisions=("fp32",), batch_sizes=(4,), compiles=("off",), attentions=("eager",), checkpoints=("0",),
    gpus=(1,), parallels=("none",), optimizers=("adamw",),
):  # fmt: skip
    """Every table of results/tables by name, those of answers made when they are read. `changes` maps a run's name to
    columns of `runs` that differ."""
    makers = {name: [] for name in ("runs", "timings", "accuracy", "cost", "kernels", "phases", "ranges", "findings")}
    lists = (
        models, contexts, modes, precisions, batch_sizes, compiles, attentions, checkpoints, gpus, parallels,
        optimizers,
    )  # fmt: skip
    others = ((DEFAULT_VALUES[key],) for key in KEYS[len(lists) :])
    for values in itertools.product(*lists, *others):
        made = _run(dict(zip(KEYS, values, strict=True)), machine, changes or {}, hostile)
        for name, table in made.items():
            makers[name].append(table)
    tables = {
        name: pd.concat([t for t in found if len(t)] or found[:1], ignore_index=True) for name, found in makers.items()
    }
    tables |= without_requests()
    return WithSummaries(tables)


class WithSummaries(dict):
    """Merged tables by name, and the tables of answers, made when they are read: all of them take seconds."""

    @functools.cached_property
    def summaries(self) -> Summaries:
        return Summaries(self)

    def __missing__(self, name: str) -> pd.DataFrame:
        return self.setdefault(name, self.summaries[name])

    def whole(self) -> dict[str, pd.DataFrame]:
        """All of them, for who changes some or goes through all."""
        return self | {name: self[name] for name in summary_names({MODEL_STEPS})}


@functools.cache
def made_up_grid() -> dict[str, pd.DataFrame]:
    """The 60 runs: one out of memory, one whose capture is incomplete, and one kernel with a hostile name."""
    changes = {"2.7B_ctx1024_train_step": OOM, "xl_ctx1024_forward_backward": INCOMPLETE}
    return made_up_tables(changes=changes, hostile=True)


def shape_of(model: str, context: int, batch_size: int = 4) -> ModelShape:
    """The shape of one of the models, with a vocabulary of 10,000."""
    d_model, d_ff, layers, heads = MODELS[model]
    return ModelShape(batch_size, context, 10_000, d_model, layers, heads, d_ff)


def _run(values, machine, changes, hostile) -> dict[str, pd.DataFrame]:
    shape = shape_of(values["model"], values["context_length"], values["batch_size"])
    name, mode = run_name(values), values["mode"]
    lead = {"run": name, **values}
    statuses = dict.fromkeys(("timing_status", "capture_status"), "complete") | STATUS_OF_OTHERS
    statuses |= changes.get(name, {})
    random = np.random.default_rng(sum(map(ord, name)))
    once = _varied(_kernels(shape, mode, hostile, FLOP_PER_S[values["precision"]]), values)
    if machine["device"] == "cpu":
        once = [(phase, path, "aten::mm", "gemm", launches, 40 * ns) for phase, path, _, _, launches, ns in once]
        once = _summed(once)
    steps = [[(*row[:5], int(row[5] * random.normal(1, 0.01))) for row in once] for _ in range(STEPS)]
    captured = steps if statuses["capture_status"] == "complete" else []
    walls = {phase: _wall_ns(once, phase) for phase in _phases(once)}
    tables = {
        "runs": [_runs_row(shape, machine) | statuses],
        "timings": _timing_rows(walls, statuses["timing_status"], random),
        "accuracy": _accuracy_rows(values["precision"]),
        "cost": [
            {
                "stage": stage,
                "measured_s": 0.4,
                "total_s": 9.0,
                "overhead_s": 8.0,
                "compile_s": 0.0 if values["compile"] == "off" else 12.0,
            }
            for stage in ("timing", "capture")
        ],
        "kernels": [row for step, rows in enumerate(captured) for row in _kernel_rows(step, rows)],
        "phases": [row for step, rows in enumerate(captured) for row in _phase_rows(step, rows, walls)],
        "ranges": [row for step, rows in enumerate(captured) for row in _range_rows(step, rows, shape.num_layers)],
        "findings": _finding_rows(captured),
    }
    return {name: _led(lead, rows, COLUMNS.get(name, [])) for name, rows in tables.items()}


def _finding_rows(captured: list) -> list[dict]:
    """One rule speaks, one cannot tell; none where nothing was captured."""
    said = ("launch_bound", False, 2.5, 20.0, "likely", "the GPU waits", "compile", "{}", "{}")
    silent = ("wave_tail", True, None, None, "possible", "no counters", "measure", "{}", "{}")
    return [dict(zip(COLUMNS["findings"], row, strict=True)) for row in (said, silent)] if captured else []


def _led(lead: dict, rows: list[dict], columns: list[str]) -> pd.DataFrame:
    table = pd.DataFrame([lead | row for row in rows], columns=[*LEADING, *(columns or rows[0])])
    return table if rows else table.astype({name: "int64" for name in columns if name not in NAMES})


def _kernels(shape: ModelShape, mode: str, hostile: bool, flop_per_s: float) -> list[tuple]:
    """(phase, range, kernel, class, launches, total_ns) of one step."""
    flops, moved = forward_flops(shape), forward_bytes(shape)
    rows = []
    for part, path, kernel, kernel_class, per_layer, share in FORWARD:
        launches = per_layer * shape.num_layers or 1
        seconds = max(flops.get(part, 0) / flop_per_s, moved[part] / BYTES_PER_S) * share
        rows.append(("forward", path, kernel, kernel_class, launches, max(seconds * 1e9, SHORTEST_NS * launches)))
    if hostile:
        rows.append(("forward", "head", HOSTILE, "unknown", 1, 40_000.0))
    forward_ns = sum(row[5] for row in rows)
    if mode == "forward":
        return rows
    rows.append(("loss", "", LOG_SOFTMAX, "softmax", 1, 60_000.0))
    for kernel, kernel_class, per_layer, share in BACKWARD:
        launches = per_layer * shape.num_layers
        rows.append(
            ("backward", "", kernel, kernel_class, launches, max(2 * forward_ns * share, SHORTEST_NS * launches))
        )
    if mode == "train_step":
        seconds = 7 * 4 * parameter_count(shape) / BYTES_PER_S
        rows.append(("optimizer", "", ADAM, "optimizer", 4 * shape.num_layers, seconds * 1e9))
    return rows


def _varied(rows: list[tuple], values: dict) -> list[tuple]:
    """Compiled: what is no matrix multiply is fused into Triton's kernels, in a third of the time. Fused attention: its
    parts are one kernel, in a fifth. Checkpointed: the blocks of the forward pass again."""
    if values["compile"] != "off":
        fused = (TRITON, "triton-fused")
        rows = [row if row[3] == "gemm" else (*row[:2], *fused, max(row[4] // 4, 1), row[5] / 3) for row in rows]
    if values["attention"] != "eager":
        rows = [(row[0], SDPA, FLASH, "attention", 1, row[5] / 5) if row[1].startswith(SDPA) else row for row in rows]
    if values["checkpoint"] != "0" and values["mode"] != "forward":
        again = [row for row in rows if row[0] == "forward" and row[1].startswith("block")]
        rows = [
            *rows,
            *(("backward", f"recomputation > {row[1]}", *row[2:]) for row in again),
        ]
    return _summed(rows)


def _summed(rows: list[tuple]) -> list[tuple]:
    """Rows of the same phase, range and kernel become one."""
    table = pd.DataFrame(rows, columns=["phase", "range", "kernel", "class", "launches", "ns"])
    summed = table.groupby(["phase", "range", "kernel", "class"], sort=False).sum().reset_index()
    return list(summed.itertuples(index=False, name=None))


def _phases(rows: list[tuple]) -> list[str]:
    return list(dict.fromkeys(row[0] for row in rows))


def _wall_ns(rows: list[tuple], phase: str) -> int:
    """Until the GPU is done, or until everything is launched, whichever is later."""
    own = [row for row in rows if row[0] == phase]
    return int(max(sum(row[5] for row in own) * 1.02, sum(row[4] for row in own) * LAUNCH_NS))


def _runs_row(shape: ModelShape, machine: dict) -> dict:
    names = ("head_dim", "reason", "oom_during", "oom_requested_bytes", "oom_free_bytes", "oom_total_bytes", "note")
    absent = dict.fromkeys(names)
    return absent | machine | {
        "vocab_size": shape.vocab_size, "d_model": shape.d_model,
        "d_ff": shape.d_ff, "num_layers": shape.num_layers, "num_heads": shape.num_heads,
        "parameters": parameter_count(shape), "forward_flops": forward_flops(shape)["forward"],
        "steps_timed": 10, "processes_timed": 1, "steps_captured": STEPS, "steps_warmed": 0,
        "device_total_bytes": None, "graphs": None, "graph_breaks": None,
        "peak_allocated_bytes": 16 * parameter_count(shape),
    }  # fmt: skip


def _timing_rows(walls: dict[str, int], status: str, random) -> list[dict]:
    if status != "complete":
        nothing = dict.fromkeys(("mean_ms", "std_ms", "min_ms", "max_ms"), np.nan)
        return [{"phase": "step", "n": 0, **nothing, "processes": 0, "process_spread": np.nan, "status": status}]
    rows = []
    for phase, wall_ns in {"step": sum(walls.values()), **walls}.items():
        ms = wall_ns / 1e6 * random.normal(0.97, 0.008, 10)
        figures = {"mean_ms": ms.mean(), "std_ms": ms.std(ddof=1), "min_ms": ms.min(), "max_ms": ms.max()}
        figures |= {"processes": 1, "process_spread": np.nan}
        rows.append({"phase": phase, "n": 10, **figures, "status": status})
    return rows


def _accuracy_rows(precision: str) -> list[dict]:
    """Every error is two roundings."""
    errors = dict.fromkeys(("loss_error", "logits_error", "gradient_norm_error"), 2 * UNIT_ROUNDOFF[precision])
    return [errors | {"explained_error": explained_error(precision), "within_precision": True, "reason": None}]


def _kernel_rows(step: int, rows: list[tuple]) -> list[dict]:
    return [
        {
            "step": step, "phase": phase, "range": path, "kernel": kernel, "class": kernel_class, "launches": launches,
            "total_ns": ns, "mean_ns": ns / launches, "min_ns": ns // launches, "max_ns": ns // launches + 1,
        }
        for phase, path, kernel, kernel_class, launches, ns in rows
    ]  # fmt: skip


def _phase_rows(step: int, rows: list[tuple], walls: dict[str, int]) -> list[dict]:
    return [_phase_row(step, "step", rows, sum(walls.values()))] + [
        _phase_row(step, phase, [row for row in rows if row[0] == phase], wall) for phase, wall in walls.items()
    ]


def _phase_row(step: int, phase: str, rows: list[tuple], wall_ns: int) -> dict:
    busy = sum(row[5] for row in rows)
    return {
        "step": step, "phase": phase, "wall_ns": wall_ns, "gpu_span_ns": max(busy, int(0.99 * wall_ns)),
        "gpu_busy_ns": busy, "kernel_ns": busy, "kernels": sum(row[4] for row in rows), "memop_ns": 0, "memops": 0,
    }  # fmt: skip


def _range_rows(step: int, rows: list[tuple], layers: int) -> list[dict]:
    """Every range with the time and kernels of what is nested in it."""
    found: dict[tuple[str, str], list[int]] = {}
    for phase, path, _, _, launches, ns in rows:
        parts = path.split(" > ") if path else []
        for length in range(len(parts) + 1):
            sums = found.setdefault((phase, " > ".join(parts[:length])), [0, 0])
            sums[0] += ns
            sums[1] += launches
    return [
        {
            "step": step, "phase": phase, "range": path, "instances": _instances(path, layers),
            "wall_ns": max(ns, kernels * LAUNCH_NS), "gpu_time_ns": ns, "kernels": kernels, "memop_time_ns": 0,
            "memops": 0,
        }
        for (phase, path), (ns, kernels) in found.items()
    ]  # fmt: skip


def _instances(path: str, layers: int) -> int:
    if not path.startswith("block"):
        return 1
    return 2 * layers if path.endswith(("norm", "residual")) else layers


def rows_of(table: pd.DataFrame) -> list[dict]:
    """The rows of a table one by one, for loops that know nothing of pandas."""
    return table.to_dict("records")
