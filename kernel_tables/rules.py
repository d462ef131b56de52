"""The rules of a diagnosis, declared: what each looks for, its threshold, its advice, and how it finds that; and users'
own rules.

A mask or an array "by activity" is in the order of capture.activities.
"""

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from kernel_tables.classes import is_fp32_without_tensor_cores, pattern_problem
from kernel_tables.errors import TraceError
from kernel_tables.evidence import Context, Hit
from kernel_tables.idle import EVALUATION, GPU, LAUNCHING
from kernel_tables.intervals import covered_ns
from kernel_tables.output import duration
from kernel_tables.steps import COMMUNICATION, IDLE, OUTSIDE, Scope, phases_and_parts

MANY_OPTIMIZER_KERNELS = 20  # of a step; clipping gradients before a fused optimizer takes six
# The ten steps of small, context 512, lie within 10 % on an H200, whose clocks fall by 5 % in 80 ms of bf16 products.
OUTLIER = 1.25
CUSTOM_EXAMPLE = "code = 'slow_norm', kernel = 'rms_norm', share = 0.05, advice = '...'"


@dataclass(frozen=True)
class Rule:
    """One rule of the diagnosis. It does not report again what the rules in `leaves_to` and `silent_where` report."""

    code: str
    looks_for: str
    share: float  # of the span that what it finds must take at least
    advice: str
    sure: str  # certain: counted; likely: profiling makes it larger; possible: to be checked in the program
    needs: tuple[str, ...]  # of Context.lacks; without one of them it abstains
    find: Callable[[Context], Hit | None] | None = None  # None: Context.wait_hit
    waits: str = ""  # when the GPU waits, in words, for wait_hit
    threshold: str = "{size}"  # in words; {size} is the share
    is_idle_only: bool = False  # whether it counts only idle time
    leaves_to: tuple[str, ...] = ()  # codes of rules whose kernels and idle time this one does not count
    silent_where: tuple[str, ...] = ()  # if one of these rules reports, this one does not
    advice_on_cpu: str = ""  # replaces `advice` for a program without a GPU
    source: str = "this project's own"  # of the threshold

    @property
    def threshold_in_words(self) -> str:
        return self.threshold.format(size=f"{self.share:.0%} of the span")


def waiting_for_data(context: Context) -> Hit:
    """On a GPU, only its idle time counts: a wait while it computes costs nothing. The launch after a wait counts as
    part of the wait. The wait before the first activity (`first_ns`) is reported, but does not help to reach the
    share."""
    scope, ns_by_activity = context.scope, np.zeros(len(context.scope.activities), np.int64)
    on_cpu, counted_ns, first_ns, longest_ns, batches = scope.profile.is_cpu_only, 0, 0, 0, 0
    for device in scope.devices:
        waits, (idle, next_row) = scope.data_waits(device), device.gaps
        waited_ns = covered_ns(waits, idle.start_ns, idle.end_ns)
        launching_ns = idle.end_ns - scope.launch_ns[next_row]
        lost_ns = np.where(waited_ns > 0, np.minimum(idle.lengths_ns, waited_ns + launching_ns), 0)
        ns_by_activity[next_row] = lost_ns
        counted_ns += waits.total_ns if on_cpu else int(lost_ns.sum())
        first_ns += 0 if on_cpu or not len(waits) else max(int(device.start_ns[0] - waits.start_ns[0]), 0)
        batches, longest_ns = batches + len(waits), max(longest_ns, int(waits.lengths_ns.max(initial=0)))
    gain_ns = counted_ns + first_ns
    message = f"the {'program' if on_cpu else 'GPU'} waits {scope.in_words(gain_ns)} for the next batch of a DataLoader"
    if any(re.match(r"enumerate\(DataLoader\).*MultiProcessing", name) for name in scope.ranges.names):
        message += (
            ", maybe longer without a profiler, which slows only the rest of a step, not the DataLoader's workers"
        )
        if scope.step_before_ns and not on_cpu:  # then at most as long as the GPU is idle there
            busy_ns = scope.span_ns - scope.parts_ns[IDLE]
            gain_ns = max(gain_ns, int(scope.step_before_ns * scope.steps_on_devices) - busy_ns)
    evidence = {"batches_per_step": round(batches / scope.step_count, 2), "longest_ms": longest_ns / 1e6}
    return Hit(gain_ns, message, evidence, ns_by_activity, counted_ns)


def recomputation(context: Context) -> Hit:
    """What a checkpoint computes again, and the gaps in it for which the host launched too late."""
    scope = context.scope
    is_again = scope.is_in_range("recomputation".__eq__) & scope.is_in_span
    idle_ns = np.zeros(len(is_again), np.int64)
    if context.calls.are_known and not scope.is_incomplete:
        idle_ns = np.where(is_again, context.idle.by_activity(LAUNCHING), 0)
    total_ns = scope.busy_ns(is_again) + int(idle_ns.sum())
    message = f"checkpoints compute activations again in the backward pass for {scope.in_words(total_ns)}"
    evidence = {"kernels_per_step": scope.per_step(is_again), "idle_ms": scope.per_step_ms(int(idle_ns.sum()))}
    return Hit(total_ns, message, evidence, context.times(is_again) + idle_ns)


def small_kernels(context: Context) -> Hit | None:
    """Many tiny kernels cost their time and the gaps around them: without them, neither would be there."""
    scope, small_ns, many = context.scope, 10_000, 100  # nsys-ai's thresholds
    is_small = scope.is_kernel & scope.is_in_span & (context.claimed_ns == 0) & (scope.duration_ns < small_ns)
    if is_small.sum() < many * scope.step_count:
        return None
    ends_gap = is_small.copy()  # whether the gap before it lies next to a small kernel
    for device in scope.devices:
        ends_gap[device.rows[1:]] |= is_small[device.rows[:-1]]
    gaps_ns, running_ns = np.where(ends_gap, context.idle.unblocked_ns, 0), scope.busy_ns(is_small)
    total_ns = running_ns + int(gaps_ns.sum())
    evidence = {
        "kernels_per_step": scope.per_step(is_small),
        "mean_us": round(float(scope.duration_ns[is_small].mean()) / 1e3, 3),
        "gaps_between_ms": scope.per_step_ms(total_ns - running_ns),
    }
    message = (
        f"{evidence['kernels_per_step']:,.0f} kernels of a step are shorter than {small_ns // 1000} µs; with the gaps"
        f" around them they take {scope.in_words(total_ns)}"
    )
    return Hit(total_ns, message, evidence, context.times(is_small) + gaps_ns)


def no_tensor_cores(context: Context) -> Hit:
    mask = context.scope.is_named(is_fp32_without_tensor_cores) & context.scope.is_of_class("gemm")
    return context.time_hit(mask, "matrix multiplies in fp32, without tensor cores, take")


def unfused_attention(context: Context) -> Hit | None:
    """The chains of kernels that a fused kernel replaces, with their products."""
    scope, (is_forward, is_backward) = context.scope, _attention_chains(context.scope)
    total_ns = scope.busy_ns(is_forward | is_backward)
    without_products_ns = scope.busy_ns((is_forward | is_backward) & ~scope.is_of_class("gemm"))
    evidence = {
        "kernels_per_step": scope.per_step(is_forward | is_backward),
        "forward_ms": scope.per_step_ms(scope.busy_ns(is_forward)),
        "backward_ms": scope.per_step_ms(scope.busy_ns(is_backward)),
        "without_matmuls_ms": scope.per_step_ms(without_products_ns),
    }
    message = f"attention runs as separate {scope.noun} (product, softmax, product), which take"
    ns_by_activity = context.times(is_forward | is_backward)
    return Hit(total_ns, f"{message} {scope.in_words(total_ns)}", evidence, ns_by_activity, without_products_ns)


def _attention_chains(scope: Scope) -> tuple[np.ndarray, np.ndarray]:
    """By activity: whether it is in a chain of attention of the forward pass, and of the backward pass.

    A chain is a product, a softmax and a product in a row on a stream, launched in one phase of one step, with nothing
    but elementwise kernels, reductions and copies between them, and the copies around it, which lay out heads. In a
    range inside the step, a softmax may be written out with an exponential; outside of all it may be that of a loss.
    The backward pass has two products on each side of the gradient of a softmax.
    """
    phases = np.array(phases_and_parts(scope.profile.paths, scope.step_name)[0])[scope.profile.attribution.path]
    is_exponential = scope.is_named(re.compile(r"exp_kernel|aten::exp_?$").search) & (phases != OUTSIDE)
    letters = np.full(len(scope.activities), b"x")
    for letter, mask in (  # later ones override
        (b"o", scope.is_of_class("elementwise", "random", "reduction", "other/view")),
        (b"c", scope.is_of_class("elementwise/copy") | scope.is_memory),
        (b"S", scope.is_of_class("softmax", "triton-fused/softmax") | is_exponential),
        (b"B", scope.is_named(re.compile(r"(?i)softmax\w*_?backward").search)),
        (b"P", scope.is_of_class("gemm")),
        (b"x", scope.is_named(re.compile(r"(?i)log_?softmax").search)),  # of a loss
    ):
        letters[mask] = letter
    found, step = [], scope.step_by_activity
    for chain in (r"P[oc]*S[ocS]*P", r"(?:P[oc]{0,2})?P[oc]*B[ocB]*P(?:[oc]{0,2}P)?"):
        found.append(np.zeros(len(letters), bool))
        for rows in scope.streams:
            for match in re.finditer(f"c{{0,4}}({chain})c{{0,4}}", letters[rows].tobytes().decode()):
                first, last = rows[match.start(1)], rows[match.end(1) - 1]
                is_of_one_pass = phases[first] == phases[last] and step[first] == step[last]
                found[-1][rows[match.start() : match.end()]] = is_of_one_pass
    return found[0], found[1]


def unfused_optimizer(context: Context) -> Hit | None:
    scope = context.scope
    mask = context.is_update & ~scope.is_of_class("optimizer")
    if mask.sum() < MANY_OPTIMIZER_KERNELS * scope.step_count:
        return None
    idle_ns, running_ns = np.where(mask, context.idle.by_activity(GPU, LAUNCHING), 0), scope.busy_ns(mask)
    total_ns = running_ns + int(idle_ns.sum())
    evidence = {
        "kernels_per_step": scope.per_step(mask),
        "many_from": MANY_OPTIMIZER_KERNELS,
        "running_ms": scope.per_step_ms(running_ns),
        "mean_us": round(float(scope.duration_ns[mask].mean()) / 1e3, 3),
    }
    waiting = "the time before each" if scope.profile.is_cpu_only else "the GPU's waiting for them"
    message = f"the optimizer's many {scope.noun}, and {waiting}, take {scope.in_words(total_ns)}"
    return Hit(total_ns, message, evidence, context.times(mask) + idle_ns)


def exposed_communication(context: Context) -> Hit | None:
    scope, most_overlap = context.scope, 0.30  # nsys-ai's threshold
    is_communication = scope.is_of_class("communication") & scope.is_in_span
    total_ns, exposed_ns = scope.busy_ns(is_communication), scope.parts_ns[COMMUNICATION]
    overlap = (total_ns - exposed_ns) / max(total_ns, 1)
    if overlap >= most_overlap:
        return None
    evidence = {"communication_ms": scope.per_step_ms(total_ns), "overlap": round(overlap, 4)}
    message = f"communication that is not overlapped by computation takes {scope.in_words(exposed_ns)}"
    return Hit(exposed_ns, message, evidence, context.times(is_communication))


def unsteady_steps(context: Context) -> Hit | None:
    """Steps that are slow. Idle time that other findings claim, or of an evaluation that waits for data, does not
    count."""
    scope, step, count = context.scope, context.scope.step_by_activity, len(context.scope.step_ranges)
    idle_ns = np.minimum(context.idle.by_activity(), context.claimed_ns + context.idle.by_activity(EVALUATION))
    # The first activity of a step ends idle time of the step before: searchsorted finds that one.
    of_step = np.maximum(np.searchsorted(scope.step_starts_ns, scope.activities.start) - 1, 0)
    claimed_ns = np.bincount(of_step, idle_ns, count) / len(scope.devices)
    time_ns = np.maximum(scope.step_times_ns - claimed_ns, 1)  # by step, as are all arrays below
    median_ns = float(np.median(time_ns))
    is_slow = time_ns > OUTLIER * median_ns
    if not is_slow.any():
        return None
    longer_ns = np.where(is_slow, time_ns - median_ns, 0)
    evidence = {
        "median_ms": median_ns / 1e6,
        "slow_steps_ms": {str(step): float(time_ns[step]) / 1e6 for step in np.flatnonzero(is_slow).tolist()},
        "longer_ms": float(longer_ns.sum()) / 1e6,
    }
    more, usual = (np.median(scope.launches_by_step[steps]) for steps in (is_slow, ~is_slow))
    message = (
        f"{int(is_slow.sum())} of {count} steps take{'s' if is_slow.sum() == 1 else ''} more than {OUTLIER}"
        f" times the median of {duration(median_ns)}; they launch {more:,.0f} {scope.noun}, and the others {usual:,.0f}"
    )
    ns_by_activity = context.times(np.isin(step, np.flatnonzero(longer_ns > 0)))
    return Hit(int(longer_ns.sum()) * len(scope.devices), message, evidence, ns_by_activity)


ON_GPU, FROM_CALLS = ("kernels", "gpu", "complete"), ("kernels", "gpu", "complete", "calls")
IN_STEP = "{size}, and at least one call after which its step launches more kernels"
RULES_WITH_IDLE_TIME = (  # those that count idle time, and perhaps other time
    "launch_bound", "idle_host", "waiting_for_data", "idle_sync", "idle_copy", "idle_allocation", "small_kernels",
    "sync_in_step", "copy_in_step", "pageable_copy", "allocation_in_step", "unfused_optimizer",
)  # fmt: skip
RULES = (  # by position: code, looks_for, share, advice, sure, needs
    Rule(
        "waiting_for_data", "the GPU idle, or a program on the CPU held up, while a DataLoader gets the next batch",
        0.05,
        "load data ahead of the step: more workers (num_workers, prefetch_factor, persistent_workers=True), less work"
        " per sample",
        "certain", ("kernels", "complete"), waiting_for_data, is_idle_only=True,
    ),
    Rule(
        "launch_bound", "the GPU idle because kernels are launched too late", 0.15,
        "compile the model (torch.compile), replay CUDA graphs, or give each launch more work (a larger batch)",
        "likely", FROM_CALLS, waits="for kernels that the host launches too late", leaves_to=("unfused_optimizer",),
        is_idle_only=True, source="nsys-ai, idle time",
    ),
    Rule(
        "idle_host", "the GPU idle while the host makes no CUDA call for 1 ms or longer", 0.05,
        "prepare data in other processes, ahead of the step; avoid full garbage collections (gc.freeze()); see what"
        " the host does meanwhile (kernel-tables host)",
        "likely", FROM_CALLS, waits="while the host makes no CUDA call for 1 ms or longer",
        leaves_to=("waiting_for_data",), is_idle_only=True,
    ),
    Rule(
        "host_function", "a stream that waits for a function on the host (cudaLaunchHostFunc, or a graph's host node)",
        0.05, "see what the function does on the host, and who enqueues it; a library's own is not the program's",
        "possible", ON_GPU, waits="for a host function", is_idle_only=True, source="pytorch 191690",
    ),
    Rule(
        "recomputation", "activations that checkpoints compute again in the backward pass", 0.05,
        "checkpoint fewer parts of the model, or none, if the GPU has the memory: recomputing saves memory alone",
        "possible", ("kernels",), recomputation,
    ),
    Rule(
        "idle_sync", "the GPU idle because the host waits for it at the end of a step or outside of steps", 0.05,
        "do not wait for the GPU after each step: read losses later, or now and then",
        "likely", FROM_CALLS, waits="after the host waited for it at the end of a step or outside of steps",
        leaves_to=("small_kernels",),
    ),
    Rule(
        "idle_copy", "the GPU idle during copies between host and device outside of steps", 0.05,
        "copy the next batch on a separate stream while this one is computed (non_blocking=True)",
        "certain", (*FROM_CALLS, "memory kinds"), waits="for copies outside of steps",
    ),
    Rule(
        "idle_allocation", "the GPU idle because of cudaMalloc, cudaFree or similar calls outside of steps", 0.01,
        "keep memory between steps: do not call empty_cache(), and keep shapes from growing",
        "likely", FROM_CALLS, waits="while the host allocates or frees memory outside of steps", is_idle_only=True,
    ),
    Rule(
        "small_kernels",
        "100 or more kernels shorter than 10 µs in a step that is not launch-bound, with the gaps around them", 0.15,
        "fuse them (torch.compile), replay them as a CUDA graph, or work on larger tensors",
        "possible", ON_GPU, small_kernels, leaves_to=("unfused_optimizer",), silent_where=("launch_bound",),
        source="nsys-ai, small kernels",
    ),
    Rule(
        "sync_in_step", "synchronization within a step: .item(), .cpu(), print, a condition on a tensor", 0.01,
        "keep the value on the GPU, and read it after the step; use torch.where instead of a condition",
        "likely", (*FROM_CALLS, "steps"), waits="after the host waited for it in the middle of a step",
        threshold=IN_STEP, leaves_to=("small_kernels",),
    ),
    Rule(
        "copy_in_step", "copies of more than 64 KiB between host and device within a step", 0.01,
        "create tensors on the device; copy inputs ahead of the step, on a separate stream",
        "certain", (*FROM_CALLS, "steps", "memory kinds"), waits="for copies within a step", threshold=IN_STEP,
    ),
    Rule(
        "pageable_copy", "copies of more than 64 KiB from or to pageable memory, in or outside of steps", 0.01,
        "pin the host's memory (pin_memory=True) and copy with non_blocking=True",
        "certain", (*FROM_CALLS, "memory kinds"), waits="for copies from or to pageable memory",
    ),
    Rule(
        "allocation_in_step", "cudaMalloc, cudaFree or similar calls within a step", 0.01,
        "do not call empty_cache() in the loop; keep shapes constant, so that PyTorch's allocator can use its cache",
        "likely", (*FROM_CALLS, "steps"), waits="while the host allocates or frees memory within a step",
        threshold=IN_STEP, is_idle_only=True,
    ),
    Rule(
        "no_tensor_cores", "matrix multiplies whose kernel names (sgemm) show that they use no tensor cores", 0.05,
        "allow TF32 (torch.set_float32_matmul_precision('high')), if the accuracy permits; bf16 saves more, since other"
        " kernels then also move less memory",
        "certain", ON_GPU, no_tensor_cores,
    ),
    Rule(
        "unfused_attention",
        "attention as separate kernels: a matrix multiply, a softmax and a matrix multiply, next to each other", 0.05,
        "use torch.nn.functional.scaled_dot_product_attention with a fused backend (in bf16: flash or cuDNN)",
        "likely", ("kernels",), unfused_attention,
        threshold="{size}, matrix multiplies not counted",
        advice_on_cpu="use torch.nn.functional.scaled_dot_product_attention",
    ),
    Rule(
        "unfused_optimizer",
        f"an optimizer step that launches {MANY_OPTIMIZER_KERNELS} or more kernels that are not fused", 0.05,
        "use an optimizer that updates many tensors in one kernel (fused=True, foreach=True)",
        "likely", ("kernels", "complete", "optimizer"), unfused_optimizer,
        advice_on_cpu="let the optimizer update all tensors in one operator (fused=True, or else foreach=True)",
    ),
    Rule(
        "exposed_communication", "communication that is not overlapped by computation", 0.05,
        "start communication earlier, in smaller pieces, during the backward pass",
        "certain", ("kernels", "communication"), exposed_communication, threshold="overlap below 30%, and {size}",
        source="nsys-ai, overlap of NCCL",
    ),
    Rule(
        "unsteady_steps", "steps that take longer than others, and whether they launch more", 0.05,
        "look at only the slow steps; if they do other work, as an evaluation does, record steps without it (record"
        " --skip); if the same work takes longer, see what else ran on the machine, and fix the GPU's clocks"
        " (nvidia-smi -lgc)",
        "possible", ("kernels", "gpu", "complete", "steps", "several steps"), unsteady_steps,
        leaves_to=RULES_WITH_IDLE_TIME, threshold=f"a step over {OUTLIER} times the median, and {{size}} in all",
        source="scatter of ten steps on an H200",
    ),
)  # fmt: skip
CODES = tuple(rule.code for rule in RULES)


NotEmpty = Annotated[str, msgspec.Meta(min_length=1)]


class CustomRule(msgspec.Struct, forbid_unknown_fields=True, rename={"of_class": "class"}):
    """A user's rule for kernels by name, class and range that take too much of the span."""

    code: Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]*$")]
    advice: NotEmpty
    share: Annotated[float, msgspec.Meta(ge=0, le=1)]  # of the span
    kernel: NotEmpty | None = None  # a regular expression, searched in the name
    of_class: NotEmpty | None = None
    range: NotEmpty | None = None
    launches: int = 1  # of a step, at least

    @property
    def selection(self) -> str:
        """What it looks at, in words."""
        selecting = {"kernel": self.kernel, "class": self.of_class, "range": self.range}
        return ", ".join(f"{name} {value!r}" for name, value in selecting.items() if value)

    def find(self, context: Context) -> Hit | None:
        scope, mask = context.scope, context.scope.is_in_span & context.scope.is_kernel
        if self.kernel:
            mask &= scope.is_named(re.compile(self.kernel, re.ASCII).search)
        if self.of_class:
            mask &= scope.is_of_class(self.of_class)
        if self.range:
            mask &= scope.is_in_range(self.range.__eq__)
        if mask.sum() < self.launches * scope.step_count:
            return None
        return context.time_hit(mask, f"{scope.noun} of {self.selection} take")


def rules_of_file(path: Path) -> tuple[Rule, ...]:
    """The rules of a TOML file, each a table [[rule]]. Raises TraceError for the first that cannot be used."""
    hint = f"write tables [[rule]] with {CUSTOM_EXAMPLE}"
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: no TOML ({error}); {hint}") from error
    if set(content) != {"rule"} or not isinstance(content["rule"], list):
        raise TraceError(f"{path}: holds {', '.join(content) or 'nothing'}; {hint}")
    return rules_of_entries(content["rule"], str(path))


def rules_of_entries(entries: Sequence[Mapping], source: str) -> tuple[Rule, ...]:
    """The rules from the entries of a file or a configuration, which the messages of a TraceError call `source`."""
    rules = []
    for number, entry in enumerate(entries, start=1):
        try:
            custom = msgspec.convert(entry, CustomRule)
            problem = "" if custom.selection else "it has to name a kernel, class or range"
            problem = problem or pattern_problem(custom.kernel or "")
        except msgspec.ValidationError as error:
            problem = str(error)
        if problem:
            raise TraceError(f"{source}, rule {number}: {problem}; write {CUSTOM_EXAMPLE}")
        rule = Rule(
            custom.code, f"kernels of {custom.selection}", custom.share, custom.advice, "possible", ("kernels",),
            custom.find, source="custom rule",
            threshold=f"{custom.share:.4g} of the span, {custom.launches} kernels a step",
        )  # fmt: skip
        rules.append(rule)
    codes = [*CODES, *(rule.code for rule in rules)]
    if repeated := next((code for code in codes if codes.count(code) > 1), None):
        raise TraceError(f"{source}: there are two rules {repeated!r}; give each a different code")
    return tuple(rules)
