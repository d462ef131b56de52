"""What speaks against believing figures of several ranks together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from kernel_tables.errors import ERROR, WARNING, Finding
from kernel_tables.ranks.collectives import unmatched_steps
from kernel_tables.ranks.ranks import RankTrace


def findings_of_ranks(ranks: Sequence[RankTrace], step_name: str = "step") -> list[Finding]:
    """The findings about the ranks side by side; none of a single one."""
    differing = [*_steps_differ(ranks, step_name)]
    return differing or [*_collectives_differ(ranks, step_name)]


def _steps_differ(ranks: Sequence[RankTrace], step_name: str) -> Iterator[Finding]:
    """Of one capture that holds several processes, those without any step are no ranks that lack them."""
    captured_alone = Counter(rank.trace for rank in ranks)
    steps = {rank.number: len(rank.steps(step_name)) for rank in ranks}
    steps = {rank.number: steps[rank.number] for rank in ranks if steps[rank.number] or captured_alone[rank.trace] == 1}
    usual = max(steps.values(), default=0)
    others = [f"rank {number}: {count}" for number, count in steps.items() if count != usual]
    if others:
        yield Finding(
            ERROR,
            "ranks_differ",
            f"ranks hold up to {usual} ranges {step_name!r}, others fewer ({', '.join(others)}): steps of ranks are"
            " matched by number, so they would be compared with other steps; capture the same steps of all ranks",
        )


def _collectives_differ(ranks: Sequence[RankTrace], step_name: str) -> Iterator[Finding]:
    steps = unmatched_steps(ranks, step_name) if ranks else []
    if steps:
        yield Finding(
            WARNING,
            "collectives_differ",
            f"ranks ran different collectives in steps {', '.join(map(str, steps[:5]))}: what was transfer and what was"
            " waiting for the slowest rank cannot be told there; capture all ranks of the run",
        )
