"""Whether all-gathers end before the layers that need them, from a capture whose lateness is known."""

import numpy as np
import pytest

from kernel_tables.intervals import Intervals
from kernel_tables.ranks.communication import lateness, lateness_of_gathers
from kernel_tables.ranks.ranks import RankTrace
from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import Synthetic, process_id

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def capture() -> Synthetic:
    """A forward pass of three layers. The first waits for its all-gather until 90. That of the second ended 20 ns
    before the layer could begin. The third waits from 400 to 450, then for the host until 470; one more runs on."""
    made = Synthetic().range("step", 0, 1000).range("forward", 0, 600)
    for number, (start, duration) in enumerate(((100, 150), (250, 150), (470, 100))):
        made.range("block", 30 + 100 * number, 90 + 100 * number)
        made.kernel("gemm", at=40 + 100 * number, start=start, duration=duration, stream=7)
    for at, start, duration in ((10, 20, 70), (95, 110, 120), (195, 300, 150), (205, 455, 100)):
        made.kernel(GATHER, at=at, start=start, duration=duration, stream=9)
    return made.kernel("gemm", at=650, start=700, duration=10, stream=7)


@pytest.fixture
def table(tmp_path):
    with Trace(capture().write(tmp_path / "a.sqlite")) as trace:
        yield lateness_of_gathers([RankTrace(0, trace, process_id(1))])


def test_a_layer_is_late_by_the_time_from_the_end_of_the_one_before_to_the_end_of_its_all_gather(table):
    assert table["pass"].unique().tolist() == ["forward"]
    columns = ["layer", "begin_ns", "end_ns", "gathers", "lateness_ns"]
    assert table[columns].values.tolist() == [[0, 20, 250, 2, 70], [1, 250, 400, 0, 0], [2, 400, 570, 2, 50]]


def test_steps_without_all_gathers_have_no_rows(tmp_path):
    made = Synthetic().range("step", 0, 100).range("forward", 0, 90).range("block", 0, 80).kernel("gemm", at=10)
    with Trace(made.write(tmp_path / "a.sqlite")) as trace:
        assert lateness_of_gathers([RankTrace(0, trace, process_id(1))]).empty


@pytest.mark.parametrize(("ended", "on_gpu", "on_processor"), [(90, 80, 80), (104, 0, 90), (150, 0, 0), (5, 0, 0)])
def test_on_a_processor_a_collective_may_end_a_little_after_the_thread_that_waited_for_it(ended, on_gpu, on_processor):
    gather = Intervals(np.array([2]), np.array([ended]))
    assert lateness(gather, 10, 100) == on_gpu
    assert lateness(gather, 10, 100, recorded_late=True) == on_processor
