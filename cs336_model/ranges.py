"""The names of the ranges that the measured program opens, and `span`, which opens them.

They are nested as follows. Each layer opens the ranges of a block; their names have no layer numbers:

    compile | warmup | measure | no_sync
      step
        forward
          embedding
          block
            norm
            attention
              qkv projection, rope
              scaled dot product attention
                computing attention scores, mask and scale, computing softmax, final matmul
              output projection
            residual
            norm
            feed-forward
              activation
            residual
          norm
          head
        loss
        backward
          loss, head, norm, block and all in it, embedding: each again, around what differentiates it
          recomputation
            block (again, as in forward)
        optimizer, synchronize

On several GPUs, `all-reduce, bytes = N` is around each all-reduce; with DDP, it is inside `all-reduce, bucket = K`.
`all-reduce buffers` is around what makes their buffers. `all-gather` and `reduce-scatter` name their bytes, too. With
FSDP, they are inside ranges without bytes, `all-gather` and `reduce-scatter`, which include the copies that a
collective needs; `wait for all-gather` is around the wait.

This module imports neither torch nor nvtx until an emitter other than "none" is chosen.
"""

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from range_marks import RECOMPUTATION

COMPILE = "compile"
WARMUP = "warmup"
MEASURE = "measure"
NO_SYNC = "no_sync"
STEP = "step"
RECORDING, DOMAIN = "recording", "cs336_model"  # the range around all that nsys may record, and its NVTX domain

FORWARD = "forward"
LOSS = "loss"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
SYNCHRONIZE = "synchronize"
ALL_REDUCE = "all-reduce"
ALL_REDUCE_BUFFERS = "all-reduce buffers"
ALL_GATHER, ALL_GATHER_WAIT, REDUCE_SCATTER = "all-gather", "wait for all-gather", "reduce-scatter"
# beginnings of the names of ranges of communication
COMMUNICATION = (ALL_REDUCE, ALL_GATHER, ALL_GATHER_WAIT, REDUCE_SCATTER)

EMBEDDING = "embedding"
BLOCK = "block"
NORM = "norm"
ATTENTION = "attention"
QKV_PROJECTION = "qkv projection"
ROPE = "rope"
SCALED_DOT_PRODUCT_ATTENTION = "scaled dot product attention"
ATTENTION_SCORES = "computing attention scores"
MASK_AND_SCALE = "mask and scale"
SOFTMAX = "computing softmax"
FINAL_MATMUL = "final matmul"
OUTPUT_PROJECTION = "output projection"
RESIDUAL = "residual"
FEED_FORWARD = "feed-forward"
ACTIVATION = "activation"
HEAD = "head"

TRAIN_STEP = "train_step"  # a mode
PHASES = (FORWARD, LOSS, BACKWARD, OPTIMIZER)
PHASES_OF_MODE = {
    "forward": (FORWARD,),
    "forward_backward": (FORWARD, LOSS, BACKWARD),
    TRAIN_STEP: PHASES,
}
MODULE_RANGE = "module {}"  # of a module that has the name of another range
# ranges around parts of the model that are no parts themselves
AROUND_PARTS = {COMPILE, WARMUP, MEASURE, NO_SYNC, STEP, FORWARD, BACKWARD, OPTIMIZER, SYNCHRONIZE}
EMITTERS = ("none", "nvtx", "record_function")

SpanFunction = Callable[[str], AbstractContextManager]  # from the name of a range to its context
_NO_RANGE = nullcontext()
_open_nothing: SpanFunction = lambda name: _NO_RANGE  # noqa: E731
_open_span: SpanFunction = _open_nothing  # what `span` does in this process
_marker = None  # range_marks.marker.Marker, after emit_ranges; None for "none"
_modules = None  # range_marks.module_parts.ModuleParts, after mark_modules; None before


def span(name: str) -> AbstractContextManager:
    """A context manager that opens the range `name` with the emitter of this process; does nothing until one is set."""
    return _open_span(name)


def in_range(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function inside the range `name`."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with span(name):
            return function(*args, **kwargs)

    return wrapped


def collective_range_name(operation: str, byte_count: int) -> str:
    """The range name of a collective of `byte_count` bytes on one rank."""
    return f"{operation}, bytes = {byte_count}"


def bucket_range_name(index: int) -> str:
    """The range name of the all-reduce of one of DDP's buckets."""
    return f"{ALL_REDUCE}, bucket = {index}"


def are_recorded() -> bool:
    """Whether a profiler sees spans as ranges."""
    return _marker is not None


def emit_ranges(emitter: Any) -> None:
    """Sets for the entire process what a span is: "none" (in timed runs, which must not pay for annotations), "nvtx"
    (push and pop in the default domain, on the calling thread), "record_function" (torch's profiler), or what an
    emitter (range_marks.marker.Emitter) opens. With an emitter other than "none", the backward pass opens the parts of
    the forward pass again, each around what differentiates it."""
    global _open_span, _marker
    if emitter == "none":
        _emit_nothing()
        return
    from kernel_tables.kineto.names import encoded
    from range_marks import backward, marker

    if emitter == "nvtx":
        emitter = marker.nvtx_emitter()
    elif emitter == "record_function":
        emitter = marker.record_function_emitter(encoded)
    elif isinstance(emitter, str):
        raise ValueError(f"unknown range emitter {emitter!r}; known are {', '.join(EMITTERS)}")
    _marker = new_marker = marker.Marker(emitter)
    backward.follow_backward(new_marker)
    _open_span = lambda name: new_marker.part(name) if _is_part(name) else new_marker.range(name)  # noqa: E731


def _emit_nothing() -> None:
    global _open_span, _marker
    _open_span = _open_nothing
    if _marker is not None:
        from range_marks import backward, compiled

        backward.follow_backward(None)
        compiled.leave_compiled()
        _marker = None


def mark_modules(model: Any) -> None:
    """Makes each call of a module of this torch model a part, with its name in range_marks.module_parts.module_names.
    Does nothing if spans do nothing: timed runs must not pay for it."""
    global _modules
    if _modules is not None:
        _modules.end()
        _modules = None
    if _open_span is _open_nothing:
        return
    from range_marks import module_parts

    other_ranges = {*AROUND_PARTS, *PHASES, RECOMPUTATION}
    names = {
        id(module): MODULE_RANGE.format(name) if name in other_ranges else name
        for module, name in module_parts.module_names(model)
    }
    _modules = module_parts.ModuleParts(span, lambda module: names.get(id(module)))
    _modules.begin()


def mark_compiled_graphs() -> None:
    """Makes compiled code, which has no spans, open a range around each kernel, named after the parts that the kernel
    computes. Does nothing unless a profiler sees ranges."""
    if _marker is not None:
        from range_marks import compiled

        part_of = compiled.SourceParts(span).innermost
        compiled.follow_compiled(lambda origins: compiled.joint_name(map(part_of, origins.stack_traces)))
        compiled.open_ranges(_marker)


def open_spans_with(open_range: SpanFunction) -> None:
    """Sets what a span is: the result of `open_range` for its name."""
    global _open_span
    _open_span = open_range


def silence_spans_while(is_silent: Callable[[], bool]) -> None:
    """Makes spans do nothing while `is_silent()`: a range would break the graph that a compiler traces."""
    open_range = _open_span
    open_spans_with(lambda name: _NO_RANGE if is_silent() else open_range(name))


def _is_part(name: str) -> bool:
    """Whether the range of this name is a part of the model, or the loss: the backward pass opens it again."""
    return name not in AROUND_PARTS and not name.startswith(COMMUNICATION)
