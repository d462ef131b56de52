"""The names of the ranges that the measured program opens, and `span`, which opens them.

Nesting, with a block's ranges once per layer (no layer numbers: a block's ranges are instances of one name):

    compile | warmup | measure
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
          recomputation
            block (again, as in forward)
        optimizer, synchronize

This module imports neither torch nor nvtx until an emitter that needs them is chosen.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

COMPILE = "compile"
WARMUP = "warmup"
MEASURE = "measure"
STEP = "step"

FORWARD = "forward"
LOSS = "loss"
BACKWARD = "backward"
OPTIMIZER = "optimizer"
SYNCHRONIZE = "synchronize"
RECOMPUTATION = "recomputation"

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

PHASES = (FORWARD, LOSS, BACKWARD, OPTIMIZER)
PHASES_OF_MODE = {
    "forward": (FORWARD,),
    "forward_backward": (FORWARD, LOSS, BACKWARD),
    "train_step": (FORWARD, LOSS, BACKWARD, OPTIMIZER),
}
EMITTERS = ("none", "nvtx", "record_function")

Span = Callable[[str], AbstractContextManager]
_NO_SPAN = nullcontext()
_open_span: Span = lambda name: _NO_SPAN  # noqa: E731


def span(name: str) -> AbstractContextManager:
    """A context manager that is the range `name` for the emitter of this process; does nothing until one is chosen."""
    return _open_span(name)


def emit_ranges(emitter: str) -> None:
    """Chooses for the whole process what a span is: "none" (a run that is timed must not pay for annotations),
    "nvtx" (push and pop in the default domain, on the calling thread) or "record_function" (torch's own profiler)."""
    global _open_span
    if emitter not in EMITTERS:
        raise ValueError(f"range emitter {emitter!r} is not known; one of {', '.join(EMITTERS)} is")
    if emitter == "nvtx":
        _open_span = _nvtx_span_class()
    elif emitter == "record_function":
        from torch.profiler import record_function

        _open_span = record_function
    else:
        _open_span = lambda name: _NO_SPAN  # noqa: E731


def silence_where(inside: Callable[[], bool]) -> None:
    """From now on a span does nothing while `inside` says so: a range would break the graph that a compiler traces."""
    global _open_span
    opened = _open_span

    def open_outside(name: str) -> AbstractContextManager:
        return _NO_SPAN if inside() else opened(name)

    _open_span = open_outside


def _nvtx_span_class() -> Span:
    """Push/pop ranges, lighter than nvtx.annotate, which makes attributes anew for every range."""
    try:
        import nvtx
    except ModuleNotFoundError as error:
        message = "ranges for nsys need the nvtx package, which is not installed: pip install nvtx"
        raise ModuleNotFoundError(message, name="nvtx") from error

    class NvtxSpan:
        __slots__ = ("name",)

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            nvtx.push_range(self.name)

        def __exit__(self, *error: object) -> None:
            nvtx.pop_range()

    return NvtxSpan
