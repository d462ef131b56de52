"""What a measured program is told: one run of the grid and one stage, as JSON on its command line. Imports no torch."""

from itertools import pairwise
from typing import Annotated, Any, Literal

import msgspec

from cs336_model.results import STAGES

OWN_MODEL = "cs336_model.model:TransformerLM"
PHASES = {  # of a step, in their order, by mode
    "forward": ("forward",),
    "forward_backward": ("forward", "loss", "backward"),
    "train_step": ("forward", "loss", "backward", "optimizer"),
}
SHAPE = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff", "rope_theta")

Stage = Literal[tuple(STAGES)]
Mode = Literal["forward", "forward_backward", "train_step"]
Precision = Literal["fp32", "tf32", "bf16", "fp16", "bf16-weights"]
Compile = Literal["off", "on", "attention"]
Parallel = Literal["none", "naive", "ddp", "fsdp"]
Optimizer = Literal["adamw", "fused"]
Count = Annotated[int, msgspec.Meta(ge=1)]
CheckpointSizes = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,3}(-[1-9][0-9]{0,3})*)$")]


class Dimensions(msgspec.Struct, kw_only=True, frozen=True):
    """What tells runs apart, in the order in which names, tables and documents have it.

    `checkpoint` is "0" for none, "8" if every 8 consecutive blocks share a checkpoint, "8-2" if these are divided
    again. `model`, `context_length` and `mode` are unset if attention alone is measured."""

    model: str | None = None
    context_length: Count | None = None
    mode: Mode | None = None
    precision: Precision = "fp32"
    batch_size: Count = 4
    compile: Compile = "off"
    attention: str = "eager"  # "eager", a backend of PyTorch, or for attention alone "module:function"
    checkpoint: CheckpointSizes = "0"
    gpus: Count = 1
    parallel: Parallel = "none"
    optimizer: Optimizer = "adamw"


class Spec(Dimensions, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """One stage of one run. What other stages need keeps its default.

    The model is constructor(**arguments), or with `config`, constructor(config(**arguments)). An argument "$name" is
    the run's value of that name; without arguments, the constructor gets the values named in SHAPE. `annotate` maps
    the name of a range to the "module:function" that becomes it, or is "modules". `replace` maps a "module:function" to
    the one that takes its place. The sizes are unset if attention alone is measured."""

    run: str
    stage: Stage = "timing"
    process: Count = 1
    sizes: dict[str, Any] = {}
    vocab_size: Count | None = None
    seed: int = 0
    device: Literal["auto", "cuda", "cpu"] = "auto"
    constructor: str = OWN_MODEL
    config: str | None = None
    arguments: dict[str, Any] = {}
    annotate: dict[str, str] | Literal["modules"] = {}
    replace: dict[str, str] = {}
    warmup_steps: Annotated[int, msgspec.Meta(ge=0)] = 0
    measured_steps: Count = 1
    backend: Literal["auto", "nsys", "torch"] = "auto"  # capture
    nsys_options: list[str] = []
    keep_report: bool = False
    windows: Count = 3  # energy
    window_s: float = 5.0
    layers: Count | None = None  # counters: layers of the smaller model that is counted in place of the run's
    metrics: list[str] = []
    head_dim: Count | None = None  # attention alone
    context_lengths: list[Count] = []
    warmup_passes: Annotated[int, msgspec.Meta(ge=0)] = 5
    measured_passes: Count = 100
    environment: dict[str, str | None] = {}

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of one step, in their order."""
        return PHASES[self.mode]

    @property
    def is_own_model(self) -> bool:
        """Whether the model is this project's."""
        return self.constructor == OWN_MODEL and self.config is None

    def constructor_arguments(self) -> dict[str, Any]:
        """What the constructor (or `config`) receives."""
        values = {"rope_theta": 10000.0, **msgspec.structs.asdict(self), **self.sizes}
        arguments = self.arguments or {name: f"${name}" for name in SHAPE}
        is_name = lambda value: isinstance(value, str) and value.startswith("$")  # noqa: E731
        return {name: values[value[1:]] if is_name(value) else value for name, value in arguments.items()}


def read_spec(text: str | bytes) -> Spec:
    """The specification in a JSON text. Raises ValueError, in one line, with what is unknown or missing."""
    try:
        return msgspec.json.decode(text, type=Spec)
    except msgspec.DecodeError as error:  # of which a ValidationError is one
        raise ValueError(f"specification: {error}") from None


def split_sizes(checkpoint: str) -> tuple[int, ...]:
    """Blocks per checkpoint by level, the outermost first: (8, 2) for "8-2"; () without checkpoints."""
    return () if checkpoint == "0" else tuple(int(size) for size in checkpoint.split("-"))


def find_conflict(spec: Spec) -> str | None:
    """Why no machine can measure this combination, in one line; None if it is possible, or only a machine knows."""
    if spec.stage == "attention":
        return None
    compile, checkpoint = f"compile {spec.compile}", f"checkpoint {spec.checkpoint}"
    several = f"gpus {spec.gpus} with parallel {spec.parallel}"
    if any(outer <= inner for outer, inner in pairwise(split_sizes(spec.checkpoint))):
        return f"{checkpoint}: groups inside a group must be smaller than it; write the largest first"
    if spec.compile != "off" and spec.checkpoint != "0":
        return f"{compile} with {checkpoint}: a compiled graph shows no recomputation; list them in separate products"
    if spec.optimizer != "adamw" and spec.mode != "train_step":
        given = f"optimizer {spec.optimizer} with mode {spec.mode}"
        return f"{given}: only train_step has an optimizer; list them separately"
    if (spec.gpus > 1) != (spec.parallel != "none"):
        return f"{several}: gradients are reduced on several GPUs, and only there; list one with the other"
    if spec.gpus > 1 and spec.mode == "forward":
        return f"{several} and mode forward: it has no gradients to reduce; list forward_backward or train_step"
    if spec.batch_size % spec.gpus:
        return f"{several} and batch_size {spec.batch_size}: all GPUs share a batch, and {spec.gpus} does not divide it"
    if spec.gpus > 1 and spec.compile != "off":
        return f"{several} and {compile}: a compiled graph is split at the buckets of gradients; leave it off"
    if not spec.is_own_model and (spec.compile == "attention" or spec.attention != "eager" or spec.checkpoint != "0"):
        asked = f"{compile}, attention {spec.attention}, {checkpoint}"
        return f"{asked} with the model {spec.constructor}: only {OWN_MODEL} has parts that can be changed"
    return None


def forward_flops(spec: Spec) -> int | None:
    """FLOPs of the matrix products of a forward pass of one process; None if the shape is unknown: another model, or
    arguments that are not these sizes. A product of (m, k) by (k, n) counts 2 m k n; the half that the causal mask
    discards is counted, because it is computed."""
    arguments = spec.constructor_arguments() if spec.is_own_model else {}
    shape = [arguments.get(name) for name in SHAPE if name != "rope_theta"]
    if not all(isinstance(size, int) for size in shape):
        return None
    vocab_size, length, d_model, layers, heads, d_ff = shape
    tokens = spec.batch_size // spec.gpus * length
    attention = 2 * tokens * length * (d_model // heads) * heads  # for the scores, and again for the values
    block = 2 * tokens * (4 * d_model**2 + 3 * d_model * d_ff) + 2 * attention
    return layers * block + 2 * tokens * d_model * vocab_size
