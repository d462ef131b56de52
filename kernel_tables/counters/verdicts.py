"""What limits a kernel: memory, compute, latency, or that it is too small; and the rules."""

import pandas as pd

from kernel_tables.counters.joining import NOT_PROFILED

NEAR = 0.6  # of a roof: Nsight Compute's "Speed Of Light" calls a kernel below this for both roofs latency-bound
ONE_WAVE = 1.0  # of blocks: below this the GPU is not filled once (its rule SmallGrid)
MEMORY, COMPUTE, TOO_SMALL, LATENCY, UNKNOWN = "memory", "compute", "too small", "latency", "not counted"
RULES = {
    MEMORY: f"its DRAM traffic takes {100 * NEAR:g} % of its time or more at the memory's roof, its FLOPs less",
    COMPUTE: f"its FLOPs take {100 * NEAR:g} % of its time or more at the roof of their kind",
    TOO_SMALL: "neither, and its blocks do not fill the GPU once (fewer than one wave)",
    LATENCY: "none of these: the GPU is filled, and waits for data, instructions or barriers",
}


def verdicts_of(table: pd.DataFrame) -> pd.DataFrame:
    """The `verdict` on every row, and `because`, the numbers that support it."""
    columns = ["memory_share", "compute_share", "waves", "not_counted"]
    verdicts = [_verdict(*row) for row in table[columns].itertuples(index=False)]
    return pd.DataFrame(verdicts, columns=["verdict", "because"], index=table.index)


def _verdict(memory: float, compute: float, waves: float, not_counted: str) -> tuple[str, str]:
    if not_counted or pd.isna(memory) or pd.isna(compute):
        return UNKNOWN, not_counted or NOT_PROFILED
    if memory >= NEAR and memory >= compute:
        return MEMORY, f"DRAM at {_percent(memory)} of its roof"
    if compute >= NEAR:
        return COMPUTE, f"FLOPs at {_percent(compute)} of their roof"
    neither = f"DRAM at {_percent(memory)}, FLOPs at {_percent(compute)} of their roofs"
    if waves < ONE_WAVE:
        return TOO_SMALL, f"{waves:.2g} waves; {neither}"
    return LATENCY, neither


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
