"""Where the time of a capture is lost: the rules, declared (the least share that each reports, its advice, and how it
finds what it reports), users' own rules, and the findings of all.

A mask or an array "by activity" is in the order of capture.activities.
"""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np

from kernel_tables.attribution import path_text
from kernel_tables.capture import NONE
from kernel_tables.classes import is_fp32_without_tensor_cores, pattern_problem
from kernel_tables.errors import TraceError
from kernel_tables.idle import CAUSES, FUNCTION, GPU, HOST, LAUNCHING, HostCalls, Idle
from kernel_tables.intervals import covered_ns, difference
from kernel_tables.profile import Profile
from kernel_tables.steps import COMMUNICATION, IDLE, OUTSIDE, Scope, phases_and_parts

if TYPE_CHECKING:
    import pandas as pd

OPTIMIZER = re.compile(r"(?i)^optimizer(?!.*zero_grad)")  # also PyTorch's own, Optimizer.step#AdamW.step
CUSTOM_EXAMPLE = "code = 'slow_norm', kernel = 'rms_norm', share = 0.05, advice = '...'"


@dataclass(frozen=True)
class Hit:
    """What a rule found in all steps of a capture, before Finding divides it among them."""

    gain_ns: int  # the most that a fix saves
    running_ns: int  # the part of it in which activities run; in the rest, the GPU is idle
    message: str
    evidence: dict[str, object]
    ns_by_activity: np.ndarray  # what it counts of each activity and of the gap that this ended
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
        """By activity: whether it is a kernel in a range of an optimizer."""
        return self.scope.is_in_range(OPTIMIZER.match) & self.scope.is_in_span & self.scope.is_kernel

    def hit(self, mask: np.ndarray, subject: str, idle_ns: np.ndarray | int = 0) -> Hit:
        """The hit for kernels of `mask` in the span, and for idle time by activity; `subject` begins its message."""
        scope, mask = self.scope, mask & self.scope.is_in_span
        running_ns = scope.busy_ns(mask)
        total_ns = running_ns + int(np.sum(idle_ns))
        evidence = {"kernels_per_step": scope.per_step(mask), "running_ms": scope.per_step_ms(running_ns)}
        ns_by_activity = np.where(mask, scope.duration_ns, 0) + idle_ns
        return Hit(total_ns, running_ns, f"{subject} {scope.in_words(total_ns)}", evidence, ns_by_activity)

    def idle_hit(self, cause: str, when: str) -> Hit:
        """The hit for the time in which a device idles between activities or only copies because of `cause`, which
        `when` says in words."""
        scope, calls = self.scope, self.calls
        number = CAUSES.index(cause) if cause in CAUSES else len(CAUSES)  # else no copy is the cause
        is_copy = (calls.copy_cause == number) & scope.is_in_span
        idle_ns = np.maximum(self.idle.by_activity(cause) - self.claimed_ns, 0)
        copying = [difference(device.time_of(is_copy), device.time_of(scope.is_kernel)) for device in scope.devices]
        copying_ns = sum(times.total_ns for times in copying)
        counted_ns = int(idle_ns.sum()) + copying_ns
        edges_ns = self.idle.at_edges_ns(cause)  # is reported with the others, but does not help to reach the share
        message = f"the GPU waits {scope.in_words(counted_ns + edges_ns)} {when}"
        compiled = scope.profile.recorded_window.get("compilations")
        if cause == HOST and isinstance(compiled, int):
            message += f" (torch.compile compiled {compiled} graph{'s' if compiled != 1 else ''})"
        if cause == FUNCTION and (functions := sorted(set(scope.profile.capture.host_functions[2]))):
            message += f" ({', '.join(functions[:3])})"
        evidence = {"gaps_per_step": scope.per_step(idle_ns > 0)}
        if copying_ns:
            evidence["copying_alone_ms"] = scope.per_step_ms(copying_ns)
        gain_ns = edges_ns + max(counted_ns, self.idle.avoidable_ns.get(cause, 0) + copying_ns)
        ns_by_activity = idle_ns + np.where(is_copy, scope.duration_ns, 0)
        return Hit(gain_ns, copying_ns, message, evidence, ns_by_activity, counted_ns)


@dataclass(frozen=True)
class Rule:
    """One rule of the diagnosis, which has either `find` or `when`."""

    code: str
    share: float  # of the span that what it finds must take at least
    advice: str
    sure: str  # certain: counted; likely: profiling makes it larger; possible: to be checked in the program
    needs: tuple[str, ...]  # of Context.lacks; without one of them it abstains
    find: Callable[[Context], Hit | None] | None = None
    when: str = ""  # of idle time whose cause is the code: when the GPU waits, see Context.idle_hit
    leaves_to: tuple[str, ...] = ()  # codes of rules whose kernels and idle time this one does not count


def waiting_for_data(context: Context) -> Hit:
    """On a GPU, only its idle time counts: a wait while it computes costs nothing. The launch after a wait counts as
    part of the wait. The wait before the first activity (`first_ns`) is reported, but does not help to reach the
    share."""
    scope, ns_by_activity = context.scope, np.zeros(len(context.scope.activities), np.int64)
    on_cpu, counted_ns, first_ns = scope.profile.is_cpu_only, 0, 0
    for device in scope.devices:
        waits, (idle, next_row) = scope.data_waits(device), device.gaps
        waited_ns = covered_ns(waits, idle.start_ns, idle.end_ns)
        launching_ns = idle.end_ns - scope.launch_ns[next_row]
        lost_ns = np.where(waited_ns > 0, np.minimum(idle.lengths_ns, waited_ns + launching_ns), 0)
        ns_by_activity[next_row] = lost_ns
        counted_ns += waits.total_ns if on_cpu else int(lost_ns.sum())
        first_ns += 0 if on_cpu or not len(waits) else max(int(device.start_ns[0] - waits.start_ns[0]), 0)
    gain_ns = counted_ns + first_ns
    message = f"the {'program' if on_cpu else 'GPU'} waits {scope.in_words(gain_ns)} for the next batch of a DataLoader"
    if any(re.match(r"enumerate\(DataLoader\).*MultiProcessing", name) for name in scope.ranges.names):
        message += ", maybe longer without a profiler, which slows the rest of a step, but not the DataLoader's workers"
        if scope.step_before_ns and not on_cpu:  # then at most as long as the GPU is idle there
            busy_ns = scope.span_ns - scope.parts_ns[IDLE]
            gain_ns = max(gain_ns, int(scope.step_before_ns * scope.steps_on_devices) - busy_ns)
    return Hit(gain_ns, 0, message, {}, ns_by_activity, counted_ns)


def recomputation(context: Context) -> Hit:
    """What a checkpoint computes again, and the gaps in it for which the host launched too late."""
    scope = context.scope
    is_again, idle_ns = scope.is_in_range("recomputation".__eq__) & scope.is_in_span, 0
    if context.calls.are_known and not scope.is_incomplete:
        idle_ns = np.where(is_again, context.idle.by_activity(LAUNCHING), 0)
    return context.hit(is_again, "checkpoints compute activations again in the backward pass for", idle_ns)


def small_kernels(context: Context) -> Hit | None:
    """Many tiny kernels cost their time and the gaps around them: without them, neither would be there."""
    scope, small_ns, many = context.scope, 10_000, 100  # nsys-ai's thresholds
    is_small = scope.is_kernel & scope.is_in_span & (context.claimed_ns == 0) & (scope.duration_ns < small_ns)
    if is_small.sum() < many * scope.step_count:
        return None
    ends_gap = is_small.copy()  # whether the gap before it lies next to a small kernel
    for device in scope.devices:
        ends_gap[device.rows[1:]] |= is_small[device.rows[:-1]]
    subject = f"{scope.per_step(is_small):,.0f} kernels of a step are shorter than {small_ns // 1000} µs"
    gaps_ns = np.where(ends_gap, context.idle.unblocked_ns, 0)
    return context.hit(is_small, f"{subject}; with the gaps around them they take", gaps_ns)


def no_tensor_cores(context: Context) -> Hit:
    """Matrix multiplies of fp32 by kernels whose names say that they do not use tensor cores."""
    mask = context.scope.is_named(is_fp32_without_tensor_cores) & context.scope.is_of_class("gemm")
    return context.hit(mask, "matrix multiplies in fp32, without tensor cores, take")


def unfused_attention(context: Context) -> Hit:
    """The chains of kernels that a fused kernel replaces, with their products. The gradient of a softmax that is
    written out looks like other work, so the time of its backward pass is bounded by that of the forward pass."""
    scope, (is_forward, is_backward) = context.scope, _attention_chains(context.scope)
    mask = is_forward | is_backward
    hit = context.hit(mask, f"attention runs as separate {scope.noun} (product, softmax, product), which take")
    message, gain_ns, counted_ns = hit.message, hit.gain_ns, scope.busy_ns(mask & ~scope.is_of_class("gemm"))
    in_backward = scope.is_in_range(re.compile(r"(?i)backward").search) & scope.is_in_span & scope.is_kernel
    # The backward pass has 2.5 times the arithmetic (FlashAttention: five products instead of two).
    bound_ns = 0 if is_backward.any() else min(scope.busy_ns(in_backward), round(2.5 * gain_ns))
    if bound_ns:
        counted_ns *= 1 + bound_ns / gain_ns
        message += f", and those of the backward pass at most {scope.in_words(bound_ns)}"
    gain_ns += bound_ns
    return replace(hit, message=message, gain_ns=gain_ns, running_ns=gain_ns, counted_ns=counted_ns)


def _attention_chains(scope: Scope) -> tuple[np.ndarray, np.ndarray]:
    """By activity: whether it is in a chain of attention of the forward pass, and of the backward pass.

    A chain is a product, a softmax and a product in a row on a stream, launched in one phase of one step, with nothing
    but elementwise kernels, reductions and copies between them, and the copies around it, which lay out heads. In a
    range inside the step, a softmax may be written out with an exponential; outside of all it may be that of a loss.
    The backward pass has two products on each side of the gradient of a softmax."""
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
    """The kernels of an optimizer that takes 20 or more of them in a step, and the GPU's waiting for them."""
    scope = context.scope
    mask, many = context.is_update & ~scope.is_of_class("optimizer"), 20  # clipping before a fused optimizer takes six
    if mask.sum() < many * scope.step_count:
        return None
    waiting = "the time before each" if scope.profile.is_cpu_only else "the GPU's waiting for them"
    idle_ns = np.where(mask, context.idle.by_activity(GPU, LAUNCHING), 0)
    return context.hit(mask, f"the optimizer's many {scope.noun}, and {waiting}, take", idle_ns)


def exposed_communication(context: Context) -> Hit | None:
    """Communication without computation, unless 30 % or more of communication overlaps with computation, the
    threshold of nsys-ai."""
    scope, most_overlap, exposed_ns = context.scope, 0.30, context.scope.parts_ns[COMMUNICATION]  # nsys-ai's threshold
    subject = f"communication without computation takes {scope.in_words(exposed_ns)}; all communication takes"
    hit = context.hit(scope.is_of_class("communication"), subject)
    is_overlapped = hit.gain_ns - exposed_ns >= most_overlap * max(hit.gain_ns, 1)
    return None if is_overlapped else replace(hit, gain_ns=exposed_ns, running_ns=exposed_ns)


ON_GPU, FROM_CALLS = ("kernels", "gpu", "complete"), ("kernels", "gpu", "complete", "calls")
# A rule comes after those in its `leaves_to`. By position: code, share, advice, sure, needs, find. Shares of 15 % are
# thresholds of nsys-ai.
RULES = (
    Rule(
        "waiting_for_data", 0.05,
        "load data ahead of the step: more workers (num_workers, prefetch_factor, persistent_workers=True), less work"
        " per sample",
        "certain", ("kernels", "complete"), waiting_for_data,
    ),
    Rule(
        "unfused_optimizer", 0.05,
        "use an optimizer that updates many tensors in one kernel (fused=True, foreach=True)",
        "likely", ("kernels", "complete", "optimizer"), unfused_optimizer,
    ),
    Rule(
        "launch_bound", 0.15,
        "compile the model if it is not compiled (torch.compile), replay CUDA graphs, or give each launch more work (a"
        " larger batch)",
        "likely", FROM_CALLS, when="for kernels that the host launches too late", leaves_to=("unfused_optimizer",),
    ),
    Rule(
        "small_kernels", 0.15,
        "fuse small kernels (torch.compile), replay them as a CUDA graph, or work on larger tensors",
        "possible", ON_GPU, small_kernels, leaves_to=("unfused_optimizer", "launch_bound"),
    ),
    Rule(
        "idle_host", 0.05,
        "prepare data in other processes, ahead of the step; avoid full garbage collections (gc.freeze()); see what"
        " the host does meanwhile (kernel-tables host)",
        "likely", FROM_CALLS, when="while the host makes no CUDA call for 1 ms or longer",
        leaves_to=("waiting_for_data",),
    ),
    Rule(
        "host_function", 0.05,  # as in issue 191690 of PyTorch
        "see what the function does on the host, and who enqueues it; a library's own is not the program's",
        "possible", ON_GPU, when="for a host function, as of cudaLaunchHostFunc",
    ),
    Rule(
        "recomputation", 0.05,
        "checkpoint fewer parts of the model, or none, if the GPU has the memory: recomputing saves memory alone",
        "possible", ("kernels",), recomputation,
    ),
    Rule(
        "idle_sync", 0.05, "do not wait for the GPU after each step: read losses later, or now and then",
        "likely", FROM_CALLS, when="after the host waited for it at the end of a step or outside of steps",
        leaves_to=("small_kernels",),
    ),
    Rule(
        "idle_copy", 0.05, "copy the next batch on a separate stream while this one is computed (non_blocking=True)",
        "certain", (*FROM_CALLS, "memory kinds"), when="for copies between host and device outside of steps",
    ),
    Rule(
        "idle_allocation", 0.01, "keep memory between steps: do not call empty_cache(), and keep shapes from growing",
        "likely", FROM_CALLS, when="while the host allocates or frees memory outside of steps",
    ),
    Rule(
        "sync_in_step", 0.01,
        "keep the value on the GPU, and read it after the step; use torch.where instead of a condition",
        "likely", (*FROM_CALLS, "steps"), leaves_to=("small_kernels",),
        when="after the host waited for it within a step, as for .item() or print",
    ),
    Rule(
        "copy_in_step", 0.01, "create tensors on the device; copy inputs ahead of the step, on a separate stream",
        "certain", (*FROM_CALLS, "steps", "memory kinds"),
        when="for copies of more than 64 KiB between host and device within a step",
    ),
    Rule(
        "pageable_copy", 0.01, "pin the host's memory (pin_memory=True) and copy with non_blocking=True",
        "certain", (*FROM_CALLS, "memory kinds"), when="for copies of more than 64 KiB from or to pageable memory",
    ),
    Rule(
        "allocation_in_step", 0.01,
        "do not call empty_cache() in the loop; keep shapes constant, so that PyTorch's allocator can use its cache",
        "likely", (*FROM_CALLS, "steps"), when="while the host allocates or frees memory within a step",
    ),
    Rule(
        "no_tensor_cores", 0.05,
        "allow TF32 (torch.set_float32_matmul_precision('high')) or use bf16, if the accuracy permits",
        "certain", ON_GPU, no_tensor_cores,
    ),
    Rule(
        "unfused_attention", 0.05,
        "use torch.nn.functional.scaled_dot_product_attention with a fused backend (in bf16: flash or cuDNN)",
        "likely", ("kernels",), unfused_attention,
    ),
    Rule(
        "exposed_communication", 0.05, "start communication earlier, in smaller pieces, during the backward pass",
        "certain", ("kernels", "communication"), exposed_communication,
    ),
)  # fmt: skip
CODES = tuple(rule.code for rule in RULES)
RULES_WITH_IDLE_TIME = tuple(
    rule.code for rule in RULES if rule.when or rule.find in (waiting_for_data, small_kernels, unfused_optimizer)
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

    def __post_init__(self) -> None:
        if problem := pattern_problem(self.kernel or ""):
            raise ValueError(problem)
        if not (self.kernel or self.of_class or self.range):
            raise ValueError("it has to name a kernel, class or range")

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
        selecting = {"kernel": self.kernel, "class": self.of_class, "range": self.range}
        selection = ", ".join(f"{name} {value!r}" for name, value in selecting.items() if value)
        return context.hit(mask, f"{scope.noun} of {selection} take")


def rules_of_file(path: Path) -> tuple[Rule, ...]:
    """The rules of a TOML file, each a table [[rule]]. Raises TraceError for the first that cannot be used."""
    try:
        entries = tomllib.loads(path.read_text("utf-8"))["rule"]
    except (ValueError, KeyError) as error:
        raise TraceError(f"{path}: no TOML with tables [[rule]] ({error}); write {CUSTOM_EXAMPLE}") from error
    return rules_of_entries(entries, str(path))


def rules_of_entries(entries: Sequence[Mapping], source: str) -> tuple[Rule, ...]:
    """The rules from the entries of a file or a configuration, which the messages of a TraceError call `source`."""
    try:
        custom = msgspec.convert(entries, list[CustomRule])
    except msgspec.ValidationError as error:
        raise TraceError(f"{source}, rules counted from 0: {error}; write {CUSTOM_EXAMPLE}") from error
    codes = [*CODES, *(rule.code for rule in custom)]
    if repeated := next((code for code in codes if codes.count(code) > 1), None):
        raise TraceError(f"{source}: there are two rules {repeated!r}; give each a different code")
    return tuple(Rule(one.code, one.share, one.advice, "possible", ("kernels",), one.find) for one in custom)


@dataclass(frozen=True)
class Diagnosis:
    """The result of one rule. Times are milliseconds of a step (without steps, of the capture) on one device."""

    code: str
    message: str  # one sentence; the reason if the rule abstains
    abstained: bool
    evidence: dict[str, object] = field(default_factory=dict)
    # "ranges" and "kernels": the longest, with their ms; "steps": the indices of its steps
    where: dict[str, object] = field(default_factory=dict)
    gain_ms: float | None = None  # what a fix saves of a step at most; None if the rule abstains
    gain_percent: float | None = None  # its share of what StepTime.percent_base says
    advice: str = ""
    sure: str = ""  # certain, likely, possible

    def sentence(self, base: str = "") -> str:
        """A finding in words: what is lost, what a fix saves, and how. `base` is StepTime.percent_base."""
        return f"{self.message}; fixing it saves at most {self.gain_percent:.0f} %{base}. To fix it, {self.advice}"


def diagnose(source: Profile | Scope, step_name: str = "step", rules: Sequence[Rule] = ()) -> list[Diagnosis]:
    """The findings of a capture (or of its scope, if the caller has that already), largest gain first, then the rules
    that abstain. Rules that found nothing are left out.

    `rules` are tried after the built-in ones: see rules_of_file. Raises NotConserved if the parts of some time do
    not add up to it."""
    scope = source if isinstance(source, Scope) else Scope(source, step_name)
    context, hits, found = Context(scope), {}, []
    for rule in (*RULES, *rules):
        about = {"code": rule.code, "advice": rule.advice, "sure": rule.sure}
        if reason := next(filter(None, map(context.lacks, rule.needs)), ""):
            found.append(Diagnosis(message=reason, abstained=True, **about))
            continue
        claimed_ns = [hits[code].ns_by_activity for code in rule.leaves_to if code in hits]
        context.claimed_ns = sum(claimed_ns, start=np.zeros(len(scope.activities), np.int64))
        hit = rule.find(context) if rule.find else context.idle_hit(rule.code, rule.when)
        counted_ns = hit and (hit.gain_ns if hit.counted_ns is None else hit.counted_ns)
        if counted_ns and scope.share(counted_ns) >= rule.share:
            hits[rule.code], facts = hit, (hit.evidence, _where(scope, hit), *_gain(scope, hit))
            found.append(Diagnosis(rule.code, hit.message, False, *facts, rule.advice, rule.sure))
    return sorted(found, key=lambda finding: (finding.abstained, -(finding.gain_ms or 0)))


def _gain(scope: Scope, hit: Hit) -> tuple[float, float]:
    """The milliseconds and percent of a step that a fix saves at most, as StepTime.percent_base says of which."""
    before_ns = None if scope.profile.is_cpu_only else scope.step_before_ns
    step_ns = limit_ns = before_ns or scope.span_ns / scope.steps_on_devices
    if before_ns:
        # Recording does not change the work of the GPU, so a step before recording is idle for the rest of its time.
        busy_ns = scope.span_ns - scope.parts_ns[IDLE]
        limit_ns -= (busy_ns - min(hit.running_ns, busy_ns)) / scope.steps_on_devices
    gain_ns = min(hit.gain_ns / scope.steps_on_devices, limit_ns)
    return gain_ns / 1e6, 100 * gain_ns / step_ns


def _where(scope: Scope, hit: Hit) -> dict[str, object]:
    """The ranges and kernels with most of the time that a rule counts, and the steps with any of it."""

    def longest(group: np.ndarray, named: Callable[[int], str]) -> dict[str, float]:
        """The three groups (`group` is by activity: its number) with the most time, and their ms."""
        ns = np.bincount(group, hit.ns_by_activity)
        largest = [number for number in np.argsort(-ns, kind="stable")[:3].tolist() if ns[number] > 0]
        return {named(number): scope.per_step_ms(int(ns[number])) for number in largest}

    steps, paths = np.unique(scope.step_by_activity[hit.ns_by_activity > 0]), scope.profile.paths
    return {
        "ranges": longest(scope.profile.attribution.path, lambda path: path_text(paths[path]) or "(no range)"),
        "kernels": longest(scope.activities.name, scope.activities.names.__getitem__),
        "steps": steps[steps != NONE].tolist(),
    }


def as_table(findings: list[Diagnosis]) -> "pd.DataFrame":
    """One row per diagnosis; evidence and where are JSON."""
    import pandas as pd

    table = pd.DataFrame(map(vars, findings), columns=list(Diagnosis.__dataclass_fields__))
    for column in ("evidence", "where"):
        table[column] = pd.Series([json.dumps(value, ensure_ascii=False) for value in table[column]], dtype=object)
    return table.astype({"gain_ms": "float64", "gain_percent": "float64", "abstained": "bool"})
