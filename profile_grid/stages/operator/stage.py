"""The stage that measures an operator alone, the only stage of runs of attention alone."""

from collections.abc import Mapping

from cs336_model.program.variants.values import NOT_COMPILED
from profile_grid.study.stage import COUNT_SCHEMA, PROCESS_SOURCES, WARMUP_SCHEMA, Setting, Stage
from profile_grid.study.workloads import ATTENTION_ALONE

BENCH_SCHEMA = {"type": "number", "minimum": 0, "maximum": 60}  # seconds for single calls of each pass, and of both
COMPILE_S = 4.0  # seconds to compile for one context length, on an H200


def _compiling_s(settings: Mapping) -> float:
    """Seconds in which a run compiles, for all its context lengths."""
    program = settings["program"]
    is_compiled = program["dimensions"]["compile"] != NOT_COMPILED
    return COMPILE_S * len(program["context_lengths"]) if is_compiled else 0.0


OPERATOR = Stage(
    name="operator",
    meaning="the process that measures attention alone",
    workload=ATTENTION_ALONE,
    table_names=("operator_times",),
    extra_seconds=_compiling_s,
    sources=PROCESS_SOURCES,
    settings={
        "warmup_passes": Setting(WARMUP_SCHEMA, default=5, of_program=True),
        "measured_passes": Setting(COUNT_SCHEMA, default=100, of_program=True),
        "bench_s": Setting(BENCH_SCHEMA, default=0.1, of_program=True),
    },
)
