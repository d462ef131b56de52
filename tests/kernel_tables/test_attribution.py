"""Which ranges a kernel belongs to, one case at a time: the capture in the test, the expected rows below it."""

import pytest

from kernel_tables.trace import Trace
from tests.kernel_tables.synthetic import START_END, Synthetic, process_id, thread_id


@pytest.fixture
def paths(tmp_path):
    """A function: the range path of each activity of a capture, joined with `/`, in the order of the tables."""

    def paths_of(capture: Synthetic, **options) -> list[str]:
        with Trace(capture.write(tmp_path / "capture.sqlite", **options)) as trace:
            return ["/".join(trace.paths[path_id]) for path_id in trace.activities()["path_id"]]

    return paths_of


def test_a_kernel_belongs_to_the_ranges_open_at_its_launch_not_at_its_run(paths):
    capture = Synthetic().range("step", 0, 100).range("forward", 10, 50).range("loss", 50, 60)
    capture.kernel("k", at=20, start=55).kernel("k", at=49, start=500).kernel("k", at=70)
    assert paths(capture) == ["step/forward", "step/forward", "step"]


def test_a_range_is_open_from_its_start_up_to_but_not_at_its_end(paths):
    capture = Synthetic().range("a", 10, 20).range("b", 20, 30)
    capture.kernel("k", at=9).kernel("k", at=10).kernel("k", at=19).kernel("k", at=20).kernel("k", at=30)
    assert paths(capture) == ["", "a", "a", "b", ""]


def test_start_end_ranges_may_overlap_without_nesting(paths):
    capture = Synthetic().range("a", 0, 50, kind=START_END).range("b", 20, 80, kind=START_END)
    capture.kernel("k", at=10).kernel("k", at=30).kernel("k", at=60)
    assert paths(capture) == ["a", "a/b", "b"]


def test_a_range_ended_on_another_thread_belongs_to_the_thread_that_opened_it(paths):
    capture = Synthetic().range("a", 0, 50, thread=1, kind=START_END, end_thread=2).range("b", 40, 60, thread=2)
    capture.kernel("k", at=10, thread=1).kernel("k", at=45, thread=2)
    assert paths(capture) == ["a", "b"]


def test_registered_strings_and_inline_text_name_the_same_range(paths):
    capture = Synthetic().range("forward", 0, 10, registered=True).range("forward", 20, 30)
    capture.kernel("k", at=5).kernel("k", at=25)
    assert paths(capture) == ["forward", "forward"]


def test_a_domain_may_have_been_made_before_the_capture_began(tmp_path):
    capture = (
        Synthetic().domain(1, "CCCL", at=-930_792_131).range("step", 0, 50).range("cub::DeviceScan", 5, 9, domain=1)
    )
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert trace.range_instances()["domain"].tolist() == ["", "CCCL"]


def test_domains_of_one_thread_may_interleave(paths):
    capture = Synthetic().domain(1, "NCCL").range("step", 0, 50).range("ncclAllReduce", 40, 70, domain=1)
    capture.kernel("k", at=45).kernel("k", at=60)
    assert paths(capture) == ["step/ncclAllReduce", "ncclAllReduce"]


def test_a_range_that_never_closes_lasts_to_the_end_of_the_capture(paths):
    capture = Synthetic().range("open", 10, None).range("inner", 20, 30)
    capture.kernel("k", at=25).kernel("k", at=900)
    assert paths(capture) == ["open/inner", "open"]


def test_kernels_join_their_launch_within_their_own_process(paths):
    capture = Synthetic().range("one", 0, 100, process=1).range("two", 0, 100, process=2)
    capture.kernel("k", at=10, process=1, correlation=7).kernel("k", at=10, process=2, correlation=7)
    capture.kernel("k", at=None, process=1, correlation=8).kernel("k", at=20, process=2, correlation=8)
    assert paths(capture) == ["one", "two", "(launched before the capture)", "two"]


def test_a_thread_inherits_the_range_of_its_process_that_encloses_its_outermost_range(paths):
    capture = Synthetic().range("step", 0, 100, thread=1).range("backward", 20, 60, thread=1)
    capture.range("AddBackward", 30, 40, thread=2).kernel("k", at=35, thread=2)
    assert paths(capture) == ["step/backward/AddBackward"]


def test_a_thread_without_ranges_inherits_what_is_open_at_the_launch(paths):
    capture = Synthetic().range("step", 0, 100, thread=1).range("backward", 20, 60, thread=1)
    capture.kernel("k", at=30, thread=2).kernel("k", at=70, thread=2).kernel("k", at=200, thread=2)
    assert paths(capture) == ["step/backward", "step", ""]


def test_threads_working_side_by_side_inherit_nothing_from_each_other(paths):
    capture = Synthetic().range("left", 0, 50, thread=1).range("right", 10, 60, thread=2)
    capture.kernel("k", at=30, thread=1).kernel("k", at=30, thread=2)
    assert paths(capture) == ["left", "right"]


def test_ranges_of_two_threads_with_the_same_times_do_not_enclose_each_other(paths):
    capture = Synthetic().range("left", 0, 50, thread=1).range("right", 0, 50, thread=2)
    capture.kernel("k", at=30, thread=1).kernel("k", at=30, thread=2)
    assert paths(capture) == ["left", "right"]


def test_of_several_threads_all_enclosing_ranges_are_inherited_ordered_by_start(paths):
    capture = Synthetic().range("late", 10, 90, thread=1).range("early", 0, 90, thread=3)
    capture.range("own", 20, 30, thread=2).kernel("k", at=25, thread=2).kernel("k", at=50, thread=2)
    assert paths(capture) == ["early/late/own", "early/late"]


def test_another_process_is_never_inherited_from(paths):
    capture = Synthetic().range("step", 0, 100, process=1).kernel("k", at=50, process=2)
    assert paths(capture) == [""]


def test_identical_names_nested_in_themselves_stay_in_the_path(paths):
    capture = Synthetic().range("block", 0, 100).range("block", 10, 90).range("block", 20, 80).kernel("k", at=50)
    assert paths(capture) == ["block/block/block"]


def test_all_kernels_of_a_graph_by_node_belong_to_the_range_that_launched_it(paths):
    capture = Synthetic().range("replay", 0, 20).call(10, 5, api="cudaGraphLaunch_v10000")
    capture.kernel("a", at=10, start=30, correlation=5).kernel("b", at=10, start=50, correlation=5)
    assert paths(capture) == ["replay", "replay"]


def test_of_a_runtime_call_around_a_driver_call_the_outer_one_is_the_launch(paths):
    capture = Synthetic().range("outer", 0, 12).range("inner", 12, 30)
    capture.call(15, 5, api="cuLaunchKernel").call(10, 5, duration=10).kernel("k", at=10, correlation=5)
    assert paths(capture) == ["outer"]


def test_correlation_ids_far_apart_are_joined_too(paths):
    capture = Synthetic().range("a", 0, 10).range("b", 20, 30)
    capture.call(25, 4_000_000_000, api="cuLaunchKernel")
    capture.kernel("k", at=5, correlation=1).kernel("k", at=22, correlation=4_000_000_000)
    assert paths(capture) == ["a", "b"]


def test_launches_before_the_capture_are_kept_in_a_bucket_of_that_name(tmp_path):
    capture = Synthetic().range("step", 0, 100).kernel("k", at=None, start=2, duration=30).kernel("k", at=50)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        table = trace.kernels()
        assert trace.activities()["launch_ns"].isna().tolist() == [True, False]
    assert table[["range", "launches", "total_ns"]].to_numpy().tolist() == [
        ["(launched before the capture)", 1, 30],
        ["step", 1, 10],
    ]


def test_numbers_of_calls_are_stripped_from_the_names_of_ranges(paths):
    capture = Synthetic().range("aten::add, seq = 12, op_id = 34", 0, 10)
    capture.range("AddBackward0, seq = 12, op_id = 35, sizes = [[2, 3]], input_op_ids = [(3,0)]", 20, 30)
    capture.kernel("k", at=5).kernel("k", at=25)
    assert paths(capture) == ["aten::add", "AddBackward0, sizes = [[2, 3]]"]


def test_captures_may_have_more_ranges_than_kernels(tmp_path):
    capture = Synthetic().range("step", 0, 10_000)
    for number in range(1000):
        capture.range(f"aten::op, seq = {number}, op_id = {number}", 10 * number, 10 * number + 8)
    with Trace(capture.kernel("k", at=5003).write(tmp_path / "capture.sqlite")) as trace:
        assert trace.ranges().to_numpy().tolist() == [["aten::op", 1000, 1, 10, 0, 0], ["step", 1, 1, 10, 0, 0]]


def test_enclosing_names_the_outermost_instance_own_or_inherited(tmp_path):
    capture = Synthetic().range("step", 0, 100).range("step", 10, 50).range("step", 200, 300)
    capture.kernel("k", at=20).kernel("k", at=250).kernel("k", at=150).kernel("k", at=60, thread=2)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert trace.enclosing("step").tolist() == [0, 2, -1, 0]
        assert trace.enclosing("no such range").tolist() == [-1, -1, -1, -1]


def test_range_instances_carry_their_full_path_domain_and_times(tmp_path):
    capture = Synthetic().domain(1, "NCCL").range("backward", 0, 100).range("all_reduce", 10, 40, thread=2, domain=1)
    capture.range("left open", 120, None).kernel("k", at=130, start=140, duration=60)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        table = trace.range_instances()
        assert [trace.paths[path_id] for path_id in table["path_id"]] == [
            ("backward",),
            ("backward", "all_reduce"),
            ("left open",),
        ]
    assert table[["name", "domain", "thread", "start_ns", "end_ns"]].to_numpy().tolist() == [
        ["backward", "", thread_id(1), 0, 100],
        ["all_reduce", "NCCL", thread_id(2), 10, 40],
        ["left open", "", thread_id(1), 120, 200],
    ]


def test_activities_say_where_they_ran_and_who_launched_them(tmp_path):
    capture = Synthetic().kernel("gemm", at=10, start=20, duration=7, thread=3, process=2, device=1, stream=14)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        (row,) = trace.activities().to_dict("records")
    assert row == {
        "kind": "kernel",
        "name": "gemm",
        "class": "gemm",
        "start_ns": 20,
        "end_ns": 27,
        "duration_ns": 7,
        "process": process_id(2),
        "thread": thread_id(3, 2),
        "device": 1,
        "stream": 14,
        "launch_ns": 10,
        "path_id": 0,
    }
