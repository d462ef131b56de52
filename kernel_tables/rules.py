"""The rules of a diagnosis, declared: what each looks for, its threshold, its advice, and how it finds that; and users'
own rules.

A mask or an array "by activity" is in the order of capture.activities.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from kernel_tables.classes import is_fp32_without_tensor_cores, pattern_problem
from kernel_tables.errors import TraceError
from kernel_tables.idle import CAUSES, FUNCTION, GPU, HOST, LAUNCHING, HostCalls, Idle
from kernel_tables.intervals import covered_ns, difference
from kernel_tables.steps import COMMUNICATION, IDLE, OUTSIDE, Scope, phases_and_parts

OPTIMIZER = re.compile(r"(?i)^optimizer(?!.*zero_grad)")  # also PyTorch's own, Optimizer.step#AdamW.step
CUSTOM_EXAMPLE = "code = 'slow_norm', kernel = 'rms_norm', share = 0.05, advice = '...'"


@dataclass(frozen=True)
class Hit:
    """What a rule found."""

    gain_ns: int  # the most that a fix saves
    message: str
    evidence: dict[str, object]
    ns_by_activity: np.ndarray = field(repr=False)  # what it counts of each activity and of the gap that this ended
    counted_ns: int | None = None  # the time that must reach the rule's share of the span; by default gain_ns


class Context:
    """What rules look at: a scope, its host's calls, its idle time, and kernels by purpose."""

    def __init__(self, scope: Scope):
        self.scope, self.calls = scope, HostCalls(scope)
        # By activity: what the rules count to which the one that runs leaves kernels and idle time.
        self.claimed_ns = np.zeros(len(scope.activities), np.int64)

    def lacks(self, need: str) -> str:
        """Why the capture lacks what a rule needs; "" if it has that."""
        scope = self.scope
        # Classes of kernels that only a model launches, not an optimizer.
        of_models = "gemm", "attention", "softmax", "normalization", "embedding", "other/convolution", "other/loss"
        match need:
            case "kernels" if not scope.devices:
                return "nothing that ran was recorded"
            case "gpu" if scope.profile.is_cpu_only:
                return "the program ran on the CPU, without a GPU"
            case "calls" if not self.calls.are_known:
                return "the capture lacks the names or the ends of API calls, so the CPU may have waited for anything"
            case "complete" if scope.is_incomplete:
                return "launches lack their kernels, or these their times, so it is not known when the GPU was idle"
            case "steps" if not scope.has_steps:
                what = f"no {scope.noun} ran in a range {scope.step_name!r}"
                return f"{what}: name the range of one step with --step-name"
            case "memory kinds" if not self.calls.has_memory_kinds:
                return "the capture lacks the sizes of copies and their kinds of memory"
            case "optimizer" if not any(map(OPTIMIZER.match, scope.ranges.names)):
                return "no range is named optimizer, and what an optimizer launches looks like other elementwise work"
            case "optimizer" if (self.is_update & scope.is_of_class(*of_models)).any():
                return "the optimizer's range also holds work of a model, as of a closure passed to step"
            case "communication" if not scope.is_of_class("communication").any():
                return "no communication between processes was recorded"
        return ""

    @cached_property
    def idle(self) -> Idle:
        return Idle(self.scope, self.calls)

    @cached_property
    def is_update(self) -> np.ndarray:
        """By activity: whether an optimizer launched it."""
        return self.scope.is_in_range(OPTIMIZER.match) & self.scope.is_in_span & self.scope.is_kernel

    def times(self, mask: np.ndarray) -> np.ndarray:
        """By activity: how long it ran, in full if it is partly in the span, if it is in `mask`; else 0."""
        return np.where(mask & self.scope.is_in_span, self.scope.duration_ns, 0)

    def time_hit(self, mask: np.ndarray, subject: str) -> Hit:
        """The hit for kernels of `mask` in the span. `subject` is the beginning of its message."""
        scope, mask = self.scope, mask & self.scope.is_in_span
        total_ns = scope.busy_ns(mask)
        evidence = {"kernels_per_step": scope.per_step(mask), "ms": scope.per_step_ms(total_ns)}
        return Hit(total_ns, f"{subject} {scope.in_words(total_ns)}", evidence, self.times(mask))

    def idle_hit(self, cause: str, looks_for: str) -> Hit | None:
        """The hit for the time in which a device idles between activities or only copies because of `cause`."""
        scope, calls = self.scope, self.calls
        number = CAUSES.index(cause) if cause in CAUSES else len(CAUSES)  # else no call or copy is the cause
        is_copy = (calls.copy_cause == number) & scope.is_in_span
        idle_ns = np.maximum(self.idle.by_activity(cause) - self.claimed_ns, 0)
        copying = [difference(device.time_of(is_copy), device.time_of(scope.is_kernel)) for device in scope.devices]
        copying_ns = sum(times.total_ns for times in copying)
        counted_ns = int(idle_ns.sum()) + copying_ns
        evidence = {
            "gaps_per_step": round(int((idle_ns > 0).sum()) / scope.step_count, 2),
            "longest_ms": int(idle_ns.max(initial=0)) / 1e6,
        }
        edges_ns = self.idle.at_edges_ns(cause)  # is reported with the others, but does not help to reach the share
        message = looks_for.replace("the GPU waits", f"the GPU waits {scope.in_words(counted_ns + edges_ns)}")
        compiled = scope.profile.recorded_window.get("compilations")
        if cause == HOST and isinstance(compiled, int):
            message += f" (torch.compile compiled {compiled} graph{'s' if compiled != 1 else ''})"
        if cause == FUNCTION and (functions := sorted(set(scope.profile.capture.host_functions[2]))):
            message += f" ({', '.join(functions[:3])})"
        if cause in CAUSES:  # how often and for how long calls held up the host in the spans of the devices
            first_ns = min(device.first_ns for device in scope.devices)
            last_ns = max(device.last_ns for device in scope.devices)
            held_up = (calls.cause == number) & (calls.start_ns >= first_ns) & (calls.start_ns < last_ns)
            counts = Counter(calls.functions[function] for function in np.sort(calls.function[held_up]).tolist())
            evidence["functions_per_step"] = {name: round(n / scope.step_count, 2) for name, n in counts.items()}
            evidence["host_ms"] = scope.per_step_ms(calls.time_of(held_up).total_ns)
        if copying_ns:
            evidence["copying_alone_ms"] = scope.per_step_ms(copying_ns)
        gain_ns = max(counted_ns, self.idle.avoidable_ns.get(cause, 0) + copying_ns)
        return Hit(gain_ns + edges_ns, message, evidence, idle_ns + self.times(is_copy), counted_ns)


@dataclass(frozen=True)
class Rule:
    """One rule of the diagnosis."""

    code: str
    looks_for: str  # of rules for idle time, "the GPU waits ..."
    share: float  # of the span that what it finds must take at least
    advice: str
    sure: str  # certain: counted; likely: profiling makes it larger; possible: to be checked in the program
    needs: tuple[str, ...]  # of Context.lacks; without one of them it abstains
    find: Callable[[Context], Hit | None] | None = None  # None: Context.idle_hit
    threshold: str = "{size}"  # in words; {size} is the share
    is_idle_only: bool = False  # whether it counts only idle time
    leaves_to: tuple[str, ...] = ()  # codes of rules whose kernels and idle time this one does not count
    source: str = "this project's own"  # of the threshold


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
        message += ", maybe longer without a profiler, which slows the rest of a step, but not the DataLoader's workers"
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


def unfused_attention(context: Context) -> Hit:
    """The chains of kernels that a fused kernel replaces, with their products. The gradient of a softmax that is
    written out looks like other work, so the time of its backward pass is bounded by that of the forward pass."""
    scope, (is_forward, is_backward) = context.scope, _attention_chains(context.scope)
    mask = is_forward | is_backward
    hit = context.time_hit(mask, f"attention runs as separate {scope.noun} (product, softmax, product), which take")
    counted_ns, bound_ns = scope.busy_ns(mask & ~scope.is_of_class("gemm")), 0
    if not is_backward.any():  # which has 2.5 times the arithmetic (FlashAttention: five products instead of two)
        in_backward = scope.is_in_range(re.compile(r"(?i)backward").search) & scope.is_in_span & scope.is_kernel
        bound_ns = min(scope.busy_ns(in_backward), round(2.5 * hit.gain_ns))
    if bound_ns:
        counted_ns *= 1 + bound_ns / max(hit.gain_ns, 1)
        hit = replace(hit, message=f"{hit.message}, and those of the backward pass at most {scope.in_words(bound_ns)}")
    return replace(hit, gain_ns=hit.gain_ns + bound_ns, counted_ns=counted_ns)


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
    found, step = np.zeros((2, len(letters)), bool), scope.step_by_activity
    chains = r"P[oc]*S[ocS]*P", r"(?:P[oc]{0,2})?P[oc]*B[ocB]*P(?:[oc]{0,2}P)?"
    for is_member, chain in zip(found, chains, strict=True):
        for rows in scope.streams:
            for match in re.finditer(f"c{{0,4}}({chain})c{{0,4}}", letters[rows].tobytes().decode()):
                first, last = rows[match.start(1)], rows[match.end(1) - 1]
                if phases[first] == phases[last] and step[first] == step[last]:
                    is_member[rows[match.start() : match.end()]] = True
    return found[0], found[1]


def unfused_optimizer(context: Context) -> Hit | None:
    scope = context.scope
    mask, many = context.is_update & ~scope.is_of_class("optimizer"), 20  # clipping before a fused optimizer takes six
    if mask.sum() < many * scope.step_count:
        return None
    idle_ns, running_ns = np.where(mask, context.idle.by_activity(GPU, LAUNCHING), 0), scope.busy_ns(mask)
    total_ns = running_ns + int(idle_ns.sum())
    evidence = {"kernels_per_step": scope.per_step(mask), "running_ms": scope.per_step_ms(running_ns)}
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


ON_GPU, FROM_CALLS = ("kernels", "gpu", "complete"), ("kernels", "gpu", "complete", "calls")
IN_STEP = "{size}, and at least one call after which its step launches more kernels"
# A rule comes after those in its `leaves_to`. By position: code, looks_for, share, advice, sure, needs, find.
RULES = (
    Rule(
        "waiting_for_data", "the GPU, or a program on the CPU, waits for the next batch of a DataLoader", 0.05,
        "load data ahead of the step: more workers (num_workers, prefetch_factor, persistent_workers=True), less work"
        " per sample",
        "certain", ("kernels", "complete"), waiting_for_data, is_idle_only=True,
    ),
    Rule(
        "unfused_optimizer", "an optimizer step that launches 20 or more kernels that are not fused", 0.05,
        "use an optimizer that updates many tensors in one kernel (fused=True, foreach=True)",
        "likely", ("kernels", "complete", "optimizer"), unfused_optimizer,
    ),
    Rule(
        "launch_bound", "the GPU waits for kernels that the host launches too late", 0.15,
        "compile the model (torch.compile), replay CUDA graphs, or give each launch more work (a larger batch)",
        "likely", FROM_CALLS, leaves_to=("unfused_optimizer",), is_idle_only=True, source="nsys-ai, idle time",
    ),
    Rule(
        "small_kernels", "100 or more kernels of a step that are shorter than 10 µs, with the gaps around them", 0.15,
        "fuse them (torch.compile), replay them as a CUDA graph, or work on larger tensors", "possible", ON_GPU,
        small_kernels, leaves_to=("unfused_optimizer", "launch_bound"), source="nsys-ai, small kernels",
    ),
    Rule(
        "idle_host", "the GPU waits while the host makes no CUDA call for 1 ms or longer", 0.05,
        "prepare data in other processes, ahead of the step; avoid full garbage collections (gc.freeze()); see what"
        " the host does meanwhile (kernel-tables host)",
        "likely", FROM_CALLS, leaves_to=("waiting_for_data",), is_idle_only=True,
    ),
    Rule(
        "host_function", "the GPU waits for a host function, as of cudaLaunchHostFunc", 0.05,
        "see what the function does on the host, and who enqueues it; a library's own is not the program's",
        "possible", ON_GPU, is_idle_only=True, source="pytorch 191690",
    ),
    Rule(
        "recomputation", "checkpoints compute activations again in the backward pass", 0.05,
        "checkpoint fewer parts of the model, or none, if the GPU has the memory: recomputing saves memory alone",
        "possible", ("kernels",), recomputation,
    ),
    Rule(
        "idle_sync", "the GPU waits after the host waited for it at the end of a step or outside of steps", 0.05,
        "do not wait for the GPU after each step: read losses later, or now and then",
        "likely", FROM_CALLS, leaves_to=("small_kernels",),
    ),
    Rule(
        "idle_copy", "the GPU waits for copies between host and device outside of steps", 0.05,
        "copy the next batch on a separate stream while this one is computed (non_blocking=True)",
        "certain", (*FROM_CALLS, "memory kinds"),
    ),
    Rule(
        "idle_allocation", "the GPU waits while the host allocates or frees memory outside of steps", 0.01,
        "keep memory between steps: do not call empty_cache(), and keep shapes from growing",
        "likely", FROM_CALLS, is_idle_only=True,
    ),
    Rule(
        "sync_in_step", "the GPU waits after the host waited for it within a step, as for .item() or print", 0.01,
        "keep the value on the GPU, and read it after the step; use torch.where instead of a condition",
        "likely", (*FROM_CALLS, "steps"), threshold=IN_STEP, leaves_to=("small_kernels",),
    ),
    Rule(
        "copy_in_step", "the GPU waits for copies of more than 64 KiB between host and device within a step", 0.01,
        "create tensors on the device; copy inputs ahead of the step, on a separate stream",
        "certain", (*FROM_CALLS, "steps", "memory kinds"), threshold=IN_STEP,
    ),
    Rule(
        "pageable_copy", "the GPU waits for copies of more than 64 KiB from or to pageable memory", 0.01,
        "pin the host's memory (pin_memory=True) and copy with non_blocking=True",
        "certain", (*FROM_CALLS, "memory kinds"),
    ),
    Rule(
        "allocation_in_step", "the GPU waits while the host allocates or frees memory within a step", 0.01,
        "do not call empty_cache() in the loop; keep shapes constant, so that PyTorch's allocator can use its cache",
        "likely", (*FROM_CALLS, "steps"), threshold=IN_STEP, is_idle_only=True,
    ),
    Rule(
        "no_tensor_cores", "matrix multiplies whose names (sgemm) show that they use no tensor cores", 0.05,
        "allow TF32 (torch.set_float32_matmul_precision('high')), if the accuracy permits; bf16 saves more, since other"
        " kernels then also move less memory",
        "certain", ON_GPU, no_tensor_cores,
    ),
    Rule(
        "unfused_attention", "attention as separate kernels: a matrix multiply, a softmax and a matrix multiply", 0.05,
        "use torch.nn.functional.scaled_dot_product_attention with a fused backend (in bf16: flash or cuDNN)",
        "likely", ("kernels",), unfused_attention, threshold="{size}, matrix multiplies not counted",
    ),
    Rule(
        "exposed_communication", "communication that is not overlapped by computation", 0.05,
        "start communication earlier, in smaller pieces, during the backward pass", "certain",
        ("kernels", "communication"), exposed_communication, threshold="overlap below 30%, and {size}",
        source="nsys-ai, overlap of NCCL",
    ),
)  # fmt: skip
CODES = tuple(rule.code for rule in RULES)
RULES_WITH_IDLE_TIME = tuple(
    rule.code for rule in RULES if not rule.find or rule.find in (waiting_for_data, small_kernels, unfused_optimizer)
)


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
    try:
        entries = [*tomllib.loads(path.read_text("utf-8"))["rule"]]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise TraceError(f"{path}: no TOML with tables [[rule]] ({error}); write {CUSTOM_EXAMPLE}") from error
    return rules_of_entries(entries, str(path))


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
