"""The dimensions of a study: the settings in which runs differ, each declared once. Imports nothing heavy.

A dimension of the measurement is chosen in config.yaml. Names of runs, the schema of grids, leading columns, sort
order, headings and words of sentences follow from its declaration. A dimension of the machine is detected by the
measurement: documents never have numbers of two machines in one table.

Runs of a model and of an operator have different dimensions (workloads.py). For the other dimensions, a run has the
default. Without a default, the dimension does not apply: its value is None, an empty cell in tables, and neither names
nor sentences mention it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from cs336_model.arithmetic.checkpoints import CHECKPOINT_PATTERN, NO_CHECKPOINT, group_sizes
from cs336_model.program.variants.values import (
    ADAMW,
    ATTENTION_ALONE,
    ATTENTIONS,
    COMPILES,
    EAGER,
    FP32,
    NOT_COMPILED,
    NOT_PARALLEL,
    OPTIMIZERS,
    PARALLELS,
    PRECISIONS,
    WHOLE_MODEL,
)

Value = str | int | None


@dataclass(frozen=True)
class Dimension:
    """A setting in which two runs can differ."""

    key: str  # its column in every table
    heading: str
    meaning: str
    unit: str = ""
    list_key: str | None = None  # key of the list of its values in a product of a grid, such as batch_sizes
    setting: str | None = None  # key at the top of config.yaml: the value for products without that list; batch_size
    default: Value | None = None  # value if config.yaml has neither key; names and sentences do not mention it
    values: tuple[Value, ...] | None = None  # all values in their order; None if the schema says which
    sort_key: Callable[[Value], object] | None = None  # the order of values that are neither in `values` nor numbers
    value_schema: Mapping = field(default_factory=lambda: {"type": "string"})
    in_run_name: str = "{}"  # in the name of a run
    in_words: str = "{}"  # in a sentence
    default_in_words: str | None = None  # the default in a sentence that names it, if it needs other words
    value_names: Mapping[Value, str] = field(default_factory=dict)  # for people
    other_value_names: str = "{}"  # pattern for values without an entry in value_names
    in_title: bool = False  # of a dimension of the machine: whether the title of the machine has it
    spellings: Mapping[object, Value] = field(default_factory=dict)  # true: "on", since YAML reads on as true

    def part_of_run_name(self, value: Value) -> str | None:
        """The part of the name of a run for this value; None for the default."""
        return None if value == self.default else self.in_run_name.format(value).replace(":", "-")  # of module:function

    @property
    def schema(self) -> dict:
        """The JSON schema of one value."""
        return {"enum": [*self.values, *self.spellings]} if self.values else dict(self.value_schema)

    @property
    def is_number(self) -> bool:
        """Whether its values are integers; otherwise they are texts."""
        if self.values:
            return all(isinstance(value, int) for value in self.values)
        return self.value_schema.get("type") == "integer"

    def value_of(self, spelling: object) -> Value:
        """The value that config.yaml means: a bare number may stand for a text."""
        value = self.spellings.get(spelling, spelling)
        return value if self.is_number or self.values else str(value)

    def name_of(self, value: Value) -> str:
        """The name of a value for people: "forward + backward" for forward_backward."""
        return self.value_names.get(value, self.other_value_names.format(value))

    def words(self, value: Value) -> str:
        """The words for this value in a sentence, after the model's name: "at context 512"."""
        if self.default_in_words and value == self.default:
            return self.default_in_words
        return self.in_words.format(self.name_of(value))

    def title(self, value: Value) -> str:
        """The words for this value in a title or a legend: "context 512", "not compiled", "no checkpoint"."""
        name = self.name_of(value)
        if value in self.value_names and name == "none":
            return f"no {self.heading}"
        return name if name.startswith("not ") else f"{self.heading} {name}"


COUNT_SCHEMA = {"type": "integer", "minimum": 1, "maximum": 10_000_000}
MODES = {"forward": "forward pass", "forward_backward": "forward + backward", "train_step": "training step"}
FULLEST_FIRST = tuple(reversed(MODES))  # modes, the one with the most phases first

MODEL = Dimension(
    key="model", heading="model", meaning="name of the model in config.yaml, or of the operator that is measured alone",
    list_key="models",
)  # fmt: skip
CONTEXT_LENGTH = Dimension(
    key="context_length", heading="context", meaning="length of every sequence", unit="tokens",
    list_key="context_lengths", value_schema=COUNT_SCHEMA, in_run_name="ctx{}", in_words="at context {}",
)  # fmt: skip
MODE = Dimension(
    key="mode", heading="mode", meaning="forward, forward_backward, or train_step",
    list_key="modes", values=tuple(MODES), value_names=MODES,
)  # fmt: skip
PRECISION = Dimension(
    key="precision", heading="precision",
    meaning="fp32, tf32 (in matrix multiplies), bf16 or fp16 (by autocast), or bf16-weights (everything in bf16)",
    list_key="precisions", setting="precision", default=FP32, values=PRECISIONS, in_words="in {}",
)  # fmt: skip
BATCH_SIZE = Dimension(
    key="batch_size", heading="batch", meaning="sequences per step, of all GPUs together", unit="sequences",
    list_key="batch_sizes", setting="batch_size", default=4, value_schema=COUNT_SCHEMA,
    in_run_name="bs{}", in_words="with batch {}",
)  # fmt: skip

COMPILE = Dimension(
    key="compile", heading="compile", meaning="torch.compile: off, on (the entire model), or attention (this part)",
    list_key="compiles", default=NOT_COMPILED, values=COMPILES, spellings={False: NOT_COMPILED, True: WHOLE_MODEL},
    value_names={NOT_COMPILED: "not compiled", WHOLE_MODEL: "entire model", ATTENTION_ALONE: "only attention"},
    in_run_name="compile-{}", in_words="compiled ({})",
)  # fmt: skip
ATTENTION = Dimension(
    key="attention", heading="attention",
    meaning="eager (separate operations), a backend of PyTorch's scaled_dot_product_attention, or in runs of attention"
    " alone a function of the user, as module:function",
    list_key="attentions", default=EAGER, values=ATTENTIONS, in_run_name="{}-attention", in_words="with {} attention",
)  # fmt: skip
CHECKPOINT = Dimension(
    key="checkpoint", heading="checkpoint",
    meaning="consecutive blocks that share a checkpoint: 0 none, 1 every block, k every k blocks; 8-2 every 8 blocks,"
    " and inside these every 2",
    list_key="checkpoints", default=NO_CHECKPOINT,
    value_schema={"type": ["integer", "string"], "minimum": 0, "maximum": 9999, "pattern": CHECKPOINT_PATTERN},
    in_run_name="checkpoint{}", in_words="with checkpoints of {}", sort_key=group_sizes,
    value_names={NO_CHECKPOINT: "none", "1": "1 block"}, other_value_names="{} blocks",
)  # fmt: skip

HEAD_DIM = Dimension(
    key="head_dim", heading="head size", meaning="size of the head", list_key="head_dims", value_schema=COUNT_SCHEMA,
    in_run_name="d{}", in_words="with head size {}",
)  # fmt: skip

GPUS = Dimension(
    key="gpus", heading="GPUs", meaning="GPUs that share the batch, with one process each; on a CPU, processes",
    list_key="gpus", default=1, value_schema={"type": "integer", "minimum": 1, "maximum": 1024},
    in_run_name="gpus{}", in_words="on {} GPUs", default_in_words="on one GPU",
)  # fmt: skip
PARALLEL = Dimension(
    key="parallel", heading="parallel",
    meaning="how gradients are reduced: none, naive (each after the backward pass), ddp (PyTorch's"
    " DistributedDataParallel), or fsdp (PyTorch's fully_shard: each process has a part of every parameter)",
    list_key="parallels", default=NOT_PARALLEL, values=PARALLELS, in_words="with {}",
    value_names={"naive": "naive DDP"},
)  # fmt: skip

OPTIMIZER = Dimension(
    key="optimizer", heading="optimizer",
    meaning="adamw (this project's, several kernels for each parameter), or fused (PyTorch's AdamW with fused=True)",
    list_key="optimizers", default=ADAMW, values=OPTIMIZERS, in_words="with optimizer {}",
)  # fmt: skip

DIMENSIONS = (
    MODEL, CONTEXT_LENGTH, MODE, PRECISION, BATCH_SIZE, COMPILE, ATTENTION, CHECKPOINT, GPUS, PARALLEL, OPTIMIZER,
)  # fmt: skip
KEYS = tuple(dimension.key for dimension in DIMENSIONS)
LEADING = ["run", *KEYS]  # the first columns of all tables but those of operators alone
OPERATOR_DIMENSIONS = (HEAD_DIM,)  # further columns of the table of runs, and of the tables of operators alone
EVERY_DIMENSION = (MODEL, *OPERATOR_DIMENSIONS, *DIMENSIONS[1:])  # in the order of a run's name
# the dimensions that every product of models has to list
KEYS_WITHOUT_DEFAULT = tuple(dimension.key for dimension in DIMENSIONS if dimension.default is None)
BY_KEY = {dimension.key: dimension for dimension in EVERY_DIMENSION}


MACHINE_DIMENSIONS = (
    Dimension("device", "device", "cuda or cpu"),
    Dimension("device_name", "", "name of the GPU or CPU"),
    Dimension("gpu_uuid_sha256", "GPU", "SHA-256 of the UUIDs of the host's GPUs"),
    Dimension("driver", "driver", "version of the NVIDIA driver", in_title=True),
    Dimension("cuda", "CUDA", "version of CUDA that PyTorch was built with", in_title=True),
    Dimension("torch", "PyTorch", "version of PyTorch", in_title=True),
    Dimension("python", "Python", "version of Python"),
    Dimension("cpu_name", "processor", "name of the processor"),
    Dimension("cores", "cores", "processor cores that the program could use", value_schema=COUNT_SCHEMA),
    Dimension("threads", "threads", "threads of PyTorch's operators on the processor", value_schema=COUNT_SCHEMA),
    Dimension("backend", "profiler", "profiler: nsys, or torch (PyTorch's own)"),
    Dimension("nsys", "Nsight Systems", "version of Nsight Systems"),
)
MACHINE_KEYS = tuple(dimension.key for dimension in MACHINE_DIMENSIONS)


def keys_without(*excluded: str) -> list[str]:
    """The keys of all DIMENSIONS except these."""
    return [key for key in KEYS if key not in excluded]


def run_name(values: Mapping[str, Value]) -> str:
    """The folder below results/runs, and the name in every table: small_ctx512_train_step."""
    parts = (dimension.part_of_run_name(values.get(dimension.key)) for dimension in EVERY_DIMENSION)
    return "_".join(part for part in parts if part is not None)


def combinations(lists: Mapping[str, Sequence[Value]]) -> Iterator[dict[str, Value]]:
    """Every combination of the values listed per dimension, the last dimension changing fastest."""
    for values in product(*lists.values()):
        yield dict(zip(lists, values, strict=True))


def title_of(values: Mapping[str, Value], keys: Iterable[str]) -> str:
    """The words for these dimensions of a run in a title: "context 512, precision bf16"."""
    return ", ".join(dimension.title(values[dimension.key]) for dimension in DIMENSIONS if dimension.key in set(keys))
