"""The declared rules of a diagnosis: what each looks for, its threshold, its advice, and when it abstains."""

from collections.abc import Callable
from dataclasses import dataclass

from kernel_tables.diagnosis import host_rules, kernel_rules, needs, step_rules
from kernel_tables.diagnosis.context import MANY_OPTIMIZER_KERNELS, DiagnosisContext, RuleHit

CERTAIN = "certain"  # counted
LIKELY = "likely"  # profiling makes it larger
POSSIBLE = "possible"  # to be checked in the program
# Thresholds in words.
MIN_SIZE = f"{host_rules.MIN_SHARE:.0%} of the span"
IN_STEP_SIZE = f"{MIN_SIZE}, and at least one call after which its step launches more kernels"
CAUSE_SIZE = f"{host_rules.CAUSE_SHARE:.0%} of the span"
KERNEL_SIZE = f"{kernel_rules.KERNEL_SHARE:.0%} of the span"


@dataclass(frozen=True)
class DiagnosisRule:
    """One rule of the diagnosis. It does not report again what the rules in `leaves_to` and `silent_where` report."""

    code: str
    looks_for: str
    threshold: str  # in words, for documents; `find` applies it
    advice: str
    sure: str  # CERTAIN, LIKELY or POSSIBLE
    find: Callable[[DiagnosisContext], RuleHit | None]
    needs: tuple[Callable[[DiagnosisContext], str | None], ...]  # each returns a reason for which the rule abstains
    leaves_to: tuple[str, ...] = ()  # codes of rules whose kernels and idle time this one does not count
    silent_where: tuple[str, ...] = ()  # if one of these rules reports, this one does not
    advice_on_cpu: str = ""  # replaces `advice` for a program without a GPU
    advice_in_graphs: str = ""  # replaces `advice` if replays of CUDA graphs launch at least half of the activities
    source: str = "this project's own"  # of the threshold


GPU_NEEDS = (needs.kernels, needs.gpu)
HOST_NEEDS = (*GPU_NEEDS, needs.calls)
IN_STEP_NEEDS = (*HOST_NEEDS, needs.steps)
IDLE_TIME_RULES = (  # those that count only idle time
    "launch_bound", "idle_host", "waiting_for_data", "idle_allocation", "allocation_in_step",
)  # fmt: skip
RULES_WITH_IDLE_TIME = (  # those that count idle time, and perhaps other time
    "launch_bound", "idle_host", "waiting_for_data", "idle_sync", "idle_copy", "idle_allocation", "small_kernels",
    "sync_in_step", "copy_in_step", "pageable_copy", "allocation_in_step", "unfused_optimizer",
)  # fmt: skip

RULES = (  # by position: code, looks_for, threshold, advice, sure, find, needs
    DiagnosisRule(
        "waiting_for_data", "the GPU idle, or a program on the CPU held up, while a DataLoader gets the next batch",
        CAUSE_SIZE,
        "load data ahead of the step: more workers (num_workers, prefetch_factor, persistent_workers=True), less work"
        " per sample",
        CERTAIN, host_rules.waiting_for_data, (needs.kernels,),
    ),
    DiagnosisRule(
        "launch_bound", "the GPU idle because kernels are launched too late",
        f"{host_rules.IDLE_SHARE:.0%} of the span",
        "compile the model (torch.compile), replay CUDA graphs, or give each launch more work (a larger batch)",
        LIKELY, host_rules.launch_bound, HOST_NEEDS, leaves_to=("unfused_optimizer",), source="nsys-ai, idle time",
        advice_in_graphs="replay more of the program as CUDA graphs, or give each launch more work (a larger batch)",
    ),
    DiagnosisRule(
        "idle_host", "the GPU idle while the host makes no CUDA call for 1 ms or longer", CAUSE_SIZE,
        "prepare data in other processes, ahead of the step; avoid full garbage collections (gc.freeze()); see what"
        " the host does meanwhile (kernel-tables host)",
        LIKELY, host_rules.idle_host, HOST_NEEDS, leaves_to=("waiting_for_data",),
    ),
    DiagnosisRule(
        "idle_sync", "the GPU idle because the host waits for it at the end of a step or outside of steps", CAUSE_SIZE,
        "do not wait for the GPU after each step: read losses later, or now and then",
        LIKELY, host_rules.idle_sync, HOST_NEEDS, leaves_to=("small_kernels",),
    ),
    DiagnosisRule(
        "idle_copy", "the GPU idle during copies between host and device outside of steps", CAUSE_SIZE,
        "copy the next batch on a separate stream while this one is computed (non_blocking=True)",
        CERTAIN, host_rules.idle_copy, (*HOST_NEEDS, needs.memory_kinds),
    ),
    DiagnosisRule(
        "idle_allocation", "the GPU idle because of cudaMalloc, cudaFree or similar calls outside of steps", MIN_SIZE,
        "keep memory between steps: do not call empty_cache(), and keep shapes from growing",
        LIKELY, host_rules.idle_allocation, HOST_NEEDS,
    ),
    DiagnosisRule(
        "small_kernels",
        "100 or more kernels shorter than 10 µs in a step that is not launch-bound, with the gaps around them",
        f"{kernel_rules.SMALL_SHARE:.0%} of the span",
        "fuse them (torch.compile), replay them as a CUDA graph, or work on larger tensors",
        POSSIBLE, kernel_rules.small_kernels, GPU_NEEDS, leaves_to=("unfused_optimizer",),
        silent_where=("launch_bound",), source="nsys-ai, small kernels",
        advice_in_graphs="fuse them (torch.compile), or work on larger tensors",
    ),
    DiagnosisRule(
        "sync_in_step", "synchronization within a step: .item(), .cpu(), print, a condition on a tensor", IN_STEP_SIZE,
        "keep the value on the GPU, and read it after the step; use torch.where instead of a condition",
        LIKELY, host_rules.sync_in_step, IN_STEP_NEEDS, leaves_to=("small_kernels",),
    ),
    DiagnosisRule(
        "copy_in_step", "copies of more than 64 KiB between host and device within a step", IN_STEP_SIZE,
        "create tensors on the device; copy inputs ahead of the step, on a separate stream",
        CERTAIN, host_rules.copy_in_step, (*IN_STEP_NEEDS, needs.memory_kinds),
    ),
    DiagnosisRule(
        "pageable_copy", "copies of more than 64 KiB from or to pageable memory, in or outside of steps", MIN_SIZE,
        "pin the host's memory (pin_memory=True) and copy with non_blocking=True",
        CERTAIN, host_rules.pageable_copy, (*HOST_NEEDS, needs.memory_kinds),
    ),
    DiagnosisRule(
        "allocation_in_step", "cudaMalloc, cudaFree or similar calls within a step", IN_STEP_SIZE,
        "do not call empty_cache() in the loop; keep shapes constant, so that PyTorch's allocator can use its cache",
        LIKELY, host_rules.allocation_in_step, IN_STEP_NEEDS,
    ),
    DiagnosisRule(
        "unfused_elementwise", "three or more elementwise kernels in a row, in one range on one stream", KERNEL_SIZE,
        "compile that part of the model, or write one kernel for it: one pass over memory instead of several",
        POSSIBLE, kernel_rules.unfused_elementwise, (needs.kernels,),
        leaves_to=("unfused_attention", "unfused_optimizer", "casts", "small_kernels"),
        advice_on_cpu="compile the parts with many elementwise operators (torch.compile): one pass over memory instead"
        " of several",
    ),
    DiagnosisRule(
        "casts", "kernels that only convert between number formats", KERNEL_SIZE,
        "keep weights in the format in which they are used (which also makes the optimizer faster, and is not counted),"
        " convert once per step, or compile the model",
        POSSIBLE, kernel_rules.casts, GPU_NEEDS,
    ),
    DiagnosisRule(
        "no_tensor_cores", "matrix multiplies whose kernel names (sgemm) show that they use no tensor cores",
        KERNEL_SIZE,
        "allow TF32 (torch.set_float32_matmul_precision('high')), if the accuracy permits; bf16 saves more, since other"
        " kernels then also move less memory",
        CERTAIN, kernel_rules.no_tensor_cores, GPU_NEEDS,
    ),
    DiagnosisRule(
        "unfused_attention",
        "attention as separate kernels: a matrix multiply, a softmax and a matrix multiply, next to each other",
        f"{KERNEL_SIZE}, matrix multiplies not counted",
        "use torch.nn.functional.scaled_dot_product_attention with a fused backend (in bf16: flash or cuDNN)",
        LIKELY, kernel_rules.unfused_attention, (needs.kernels, needs.attention_in_modules),
        advice_on_cpu="use torch.nn.functional.scaled_dot_product_attention",
    ),
    DiagnosisRule(
        "unfused_optimizer",
        f"an optimizer step that launches {MANY_OPTIMIZER_KERNELS} or more kernels that are not fused (those of a"
        " closure passed to step do not count)",
        KERNEL_SIZE, "use an optimizer that updates many tensors in one kernel (fused=True, foreach=True)",
        LIKELY, kernel_rules.unfused_optimizer, (needs.kernels, needs.optimizer_range),
        advice_on_cpu="let the optimizer update all tensors in one operator (fused=True, or else foreach=True)",
    ),
    DiagnosisRule(
        "low_occupancy",
        "kernels of a wave or more, except matrix multiplies and attention, that keep fewer than half of the possible"
        " warps active",
        KERNEL_SIZE, "see what limits them (registers, shared memory, block size), and let a block take less of it",
        POSSIBLE, kernel_rules.low_occupancy, (needs.gpu, needs.counters),
    ),
    DiagnosisRule(
        "wave_tail", "kernels of several waves, with a fifth or more of their block slots empty in the last wave",
        KERNEL_SIZE, "choose sizes whose blocks fill complete waves, or kernels that divide the last wave (stream-K)",
        POSSIBLE, kernel_rules.wave_tail, (needs.gpu, needs.counters),
    ),
    DiagnosisRule(
        "exposed_communication", "communication that is not overlapped by computation",
        f"overlap below {kernel_rules.OVERLAP_SHARE:.0%}, and {KERNEL_SIZE}",
        "start communication earlier, in smaller pieces, during the backward pass",
        CERTAIN, kernel_rules.exposed_communication, (needs.kernels, needs.communication),
        source="nsys-ai, overlap of NCCL",
    ),
    DiagnosisRule(
        "unsteady_steps", "steps that take longer than others, or increasingly long, and what they do more often",
        f"a step over {step_rules.OUTLIER} times the median, or a drift of {step_rules.DRIFT:.0%}, and {CAUSE_SIZE} in"
        " all",
        "look at only the slow steps; if they do other work, as an evaluation does, record steps without it (record"
        " --skip); if the same work takes longer, see what else ran on the machine, and fix the GPU's clocks"
        " (nvidia-smi -lgc)",
        POSSIBLE, step_rules.unsteady_steps, (needs.kernels, needs.steps, needs.several_steps),
        leaves_to=RULES_WITH_IDLE_TIME, source="scatter of ten steps on an H200",
        advice_on_cpu="if the slow steps do other work than you want to measure, as an evaluation does, record steps"
        " without it (record --skip)",
    ),
)  # fmt: skip
CODES = tuple(rule.code for rule in RULES)
COUNTER_RULES = tuple(rule for rule in RULES if needs.counters in rule.needs)
