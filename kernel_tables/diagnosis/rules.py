"""The declared rules of a diagnosis: what each looks for, its threshold, its advice, and when it abstains."""

from collections.abc import Callable
from dataclasses import dataclass

from kernel_tables.diagnosis import host_rules, kernel_rules, needs, step_rules
from kernel_tables.diagnosis.context import MANY_OPTIMIZER_KERNELS, DiagnosisContext, RuleHit

CERTAIN = "certain"  # counted
LIKELY = "likely"  # increased by profiling
POSSIBLE = "possible"  # to be checked in the program
HERE = "this project's own"
SIZE = f"{host_rules.WORTH_SHARE:.0%} of the span, and at least one call after which its step launches more kernels"
CAUSE = f"{host_rules.CAUSE_SHARE:.0%} of the span"
KERNELS = f"{kernel_rules.KERNEL_SHARE:.0%} of the span"


@dataclass(frozen=True)
class DiagnosisRule:
    """One rule. `needs` are called in turn; a rule abstains for the first reason that one of them returns.

    Of several rules that could report the same, one does: this one is silent if a rule of `silent_where` reports, and
    does not count the kernels and idle time of rules in `leaves_to`.
    """

    code: str
    looks_for: str
    threshold: str
    source: str
    advice: str
    sure: str
    find: Callable[[DiagnosisContext], RuleHit | None]
    needs: tuple[Callable[[DiagnosisContext], str | None], ...]
    leaves_to: tuple[str, ...] = ()
    silent_where: tuple[str, ...] = ()
    advice_on_cpu: str = ""  # if a program without a GPU needs another
    advice_in_graphs: str = ""  # if a program that replays CUDA graphs needs another


HOST = (needs.kernels, needs.gpu, needs.calls)
IN_STEP = (*HOST, needs.steps)
GPU = (needs.kernels, needs.gpu)
# Rules that only concern idle time.
IDLE_TIME_RULES = ("launch_bound", "idle_host", "waiting_for_data", "idle_allocation", "allocation_in_step")
RULES_WITH_IDLE_TIME = (
    "launch_bound", "idle_host", "waiting_for_data", "idle_sync", "idle_copy", "idle_allocation", "small_kernels",
    "sync_in_step", "copy_in_step", "pageable_copy", "allocation_in_step", "unfused_optimizer",
)  # fmt: skip

RULES = (
    DiagnosisRule(
        "waiting_for_data", "the GPU idle, or a program on the CPU held up, while a DataLoader gets the next batch",
        CAUSE, HERE,
        "load data ahead of the step: more workers (num_workers, prefetch_factor, persistent_workers=True), less work"
        " per sample",
        CERTAIN, host_rules.waiting_for_data, (needs.kernels,),
    ),
    DiagnosisRule(
        "launch_bound", "the GPU idle because kernels are launched too late",
        f"{host_rules.IDLE_SHARE:.0%} of the span", "nsys-ai, idle time",
        "compile the model (torch.compile), replay CUDA graphs, or give each launch more work (a larger batch)",
        LIKELY, host_rules.launch_bound, HOST, leaves_to=("unfused_optimizer",),
        advice_in_graphs="replay more of the program as CUDA graphs, or give each launch more work (a larger batch)",
    ),
    DiagnosisRule(
        "idle_host", "the GPU idle while the host makes no CUDA call for 1 ms or longer", CAUSE, HERE,
        "prepare data in other processes, ahead of the step; avoid full garbage collections (gc.freeze()); see what"
        " the host does meanwhile (kernel-tables host)",
        LIKELY, host_rules.idle_host, HOST, leaves_to=("waiting_for_data",),
    ),
    DiagnosisRule(
        "idle_sync", "the GPU idle because the host waits for it at the end of a step or outside of steps", CAUSE, HERE,
        "do not wait for the GPU after each step: read losses later, or now and then",
        LIKELY, host_rules.idle_sync, HOST, leaves_to=("small_kernels",),
    ),
    DiagnosisRule(
        "idle_copy", "the GPU idle during copies between host and device outside of steps", CAUSE, HERE,
        "copy the next batch on a separate stream while this one is computed (non_blocking=True)",
        CERTAIN, host_rules.idle_copy, (*HOST, needs.memory_kinds),
    ),
    DiagnosisRule(
        "idle_allocation", "the GPU idle because of cudaMalloc, cudaFree or similar calls outside of steps",
        f"{host_rules.WORTH_SHARE:.0%} of the span", HERE,
        "keep memory between steps: do not call empty_cache(), and keep shapes from growing",
        LIKELY, host_rules.idle_allocation, HOST,
    ),
    DiagnosisRule(
        "small_kernels",
        "100 or more kernels shorter than 10 µs in a step that is not launch-bound, with the gaps around them",
        f"{kernel_rules.SMALL_SHARE:.0%} of the span", "nsys-ai, small kernels",
        "fuse them (torch.compile), replay them as a CUDA graph, or work on larger tensors",
        POSSIBLE, kernel_rules.small_kernels, GPU, leaves_to=("unfused_optimizer",), silent_where=("launch_bound",),
        advice_in_graphs="fuse them (torch.compile), or work on larger tensors",
    ),
    DiagnosisRule(
        "sync_in_step", "synchronization within a step: .item(), .cpu(), print, a condition on a tensor", SIZE, HERE,
        "keep the value on the GPU, and read it after the step; use torch.where instead of a condition",
        LIKELY, host_rules.sync_in_step, IN_STEP, leaves_to=("small_kernels",),
    ),
    DiagnosisRule(
        "copy_in_step", "copies of more than 64 KiB between host and device within a step", SIZE, HERE,
        "create tensors on the device; copy inputs ahead of the step, on a separate stream",
        CERTAIN, host_rules.copy_in_step, (*IN_STEP, needs.memory_kinds),
    ),
    DiagnosisRule(
        "pageable_copy", "copies of more than 64 KiB from or to pageable memory, in or outside of steps",
        f"{host_rules.WORTH_SHARE:.0%} of the span", HERE,
        "pin the host's memory (pin_memory=True) and copy with non_blocking=True",
        CERTAIN, host_rules.pageable_copy, (*HOST, needs.memory_kinds),
    ),
    DiagnosisRule(
        "allocation_in_step", "cudaMalloc, cudaFree or similar calls within a step", SIZE, HERE,
        "do not call empty_cache() in the loop; keep shapes constant, so that PyTorch's allocator can use its cache",
        LIKELY, host_rules.allocation_in_step, IN_STEP,
    ),
    DiagnosisRule(
        "unfused_elementwise", "three or more elementwise kernels in a row, in one range on one stream", KERNELS, HERE,
        "compile that part of the model, or write one kernel for it: one pass over memory instead of several",
        POSSIBLE, kernel_rules.unfused_elementwise, (needs.kernels,),
        leaves_to=("unfused_attention", "unfused_optimizer", "casts", "small_kernels"),
        advice_on_cpu="compile the parts with many elementwise operators (torch.compile): one pass over memory instead"
        " of several",
    ),
    DiagnosisRule(
        "casts", "kernels that only convert between number formats", KERNELS, HERE,
        "keep weights in the format in which they are used (which also makes the optimizer faster, and is not counted),"
        " convert once per step, or compile the model",
        POSSIBLE, kernel_rules.casts, GPU,
    ),
    DiagnosisRule(
        "no_tensor_cores", "matrix multiplies in fp32 without tensor cores, as the names of their kernels say (sgemm)",
        KERNELS, HERE,
        "allow TF32 (torch.set_float32_matmul_precision('high')), if the accuracy permits; bf16 saves more, since other"
        " kernels then also move less memory",
        CERTAIN, kernel_rules.no_tensor_cores, GPU,
    ),
    DiagnosisRule(
        "unfused_attention",
        "attention as separate kernels: a matrix multiply, a softmax and a matrix multiply, next to each other",
        f"{KERNELS}, matrix multiplies not counted", HERE,
        "use torch.nn.functional.scaled_dot_product_attention with a fused backend (in bf16: flash or cuDNN)",
        LIKELY, kernel_rules.unfused_attention, (needs.kernels, needs.attention_in_modules),
        advice_on_cpu="use torch.nn.functional.scaled_dot_product_attention",
    ),
    DiagnosisRule(
        "unfused_optimizer",
        f"an optimizer step that launches {MANY_OPTIMIZER_KERNELS} or more kernels that are not fused (those of a"
        " closure do not count)",
        KERNELS, HERE, "use an optimizer that updates many tensors in one kernel (fused=True, foreach=True)",
        LIKELY, kernel_rules.unfused_optimizer, (needs.kernels, needs.optimizer_range),
        advice_on_cpu="let the optimizer update all tensors in one operator (fused=True, or else foreach=True)",
    ),
    DiagnosisRule(
        "low_occupancy",
        "kernels of a wave or more, except matrix multiplies, that keep fewer than half of the possible warps active",
        KERNELS, HERE, "see what limits them (registers, shared memory, block size), and let a block take less of it",
        POSSIBLE, kernel_rules.low_occupancy, (needs.gpu, needs.counters),
    ),
    DiagnosisRule(
        "wave_tail", "kernels of several waves, with a fifth or more of their block slots empty in the last wave",
        KERNELS, HERE, "choose sizes whose blocks fill complete waves, or kernels that divide the last wave (stream-K)",
        POSSIBLE, kernel_rules.wave_tail, (needs.gpu, needs.counters),
    ),
    DiagnosisRule(
        "exposed_communication", "communication that is not overlapped by computation",
        f"overlap below {kernel_rules.OVERLAP_SHARE:.0%}, and {KERNELS}", "nsys-ai, overlap of NCCL",
        "start communication earlier, in smaller pieces, during the backward pass",
        CERTAIN, kernel_rules.exposed_communication, (needs.kernels, needs.communication),
    ),
    DiagnosisRule(
        "unsteady_steps", "steps that take longer than others, or increasingly long, and what they do more often",
        f"a step over {step_rules.OUTLIER} times the median, or a drift of {step_rules.DRIFT:.0%}, and {CAUSE} in all",
        "scatter of ten steps on an H200",
        "look at only the slow steps; if they do other work, as an evaluation does, record steps without it (record"
        " --skip); if the same work takes longer, see what else ran on the machine, and fix the GPU's clocks"
        " (nvidia-smi -lgc)",
        POSSIBLE, step_rules.unsteady_steps, (needs.kernels, needs.steps, needs.several_steps),
        leaves_to=RULES_WITH_IDLE_TIME,
        advice_on_cpu="if the slow steps do other work than you want to measure, as an evaluation does, record steps"
        " without it (record --skip)",
    ),
)  # fmt: skip
CODES = tuple(rule.code for rule in RULES)


OF_COUNTERS = tuple(rule for rule in RULES if needs.counters in rule.needs)
