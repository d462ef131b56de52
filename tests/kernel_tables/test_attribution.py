"""Which ranges a kernel belongs to: cases, one rule at a time; then every capture, and random ones, by brute force."""

import gzip
import re
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables.attribution import path_text
from kernel_tables.errors import ImpossibleCapture
from kernel_tables.tables import instance_paths
from tests.kernel_tables.brute_force import Rows
from tests.kernel_tables.synthetic import START_END, Synthetic, process_id, random_capture, thread_id

CAPTURES = Path(__file__).parents[1] / "captures"
DOCUMENT = Path(__file__).parents[2] / "docs" / "attribution.md"
LOST = "(launched before the capture)"
REPORTS = Path(__file__).parent / "reports"


def kernels(capture: Synthetic, *launches: int, **where) -> Synthetic:
    for at in launches:
        capture.kernel("k", at, **where)
    return capture


CASES = {  # what random captures do not have, by what it shows: a capture, and the path of each of its activities
    "ranges of two domains are in one chain": (
        kernels(Synthetic().domain(1, "mine").range("step", 0, 50).range("all_reduce", 40, 70, domain=1), 45, 60),
        ["step/all_reduce", "all_reduce"],
    ),
    "but those of a library's domain are not the program's": (
        kernels(Synthetic().domain(1, "CCCL").range("step", 0, 50).range("cub::Sort", 40, 70, domain=1), 45, 60),
        ["step", ""],
    ),
    "a range that another thread ends belongs to the thread that opened it": (
        Synthetic().range("a", 0, 50, kind=START_END, end_thread=2).range("b", 40, 60, thread=2)
        .kernel("k", at=10).kernel("k", at=45, thread=2),
        ["a", "b"],
    ),
    "numbers of calls are no part of a name": (
        kernels(
            Synthetic().range("aten::add, seq = 12, op_id = 34", 0, 10)
            .range("Add0, seq = 12, op_id = 35, sizes = [[2, 3]], input_op_ids = [(3,0)]", 20, 30), 5, 25,
        ),
        ["aten::add", "Add0, sizes = [[2, 3]]"],
    ),
    "correlation ids are unique within a process, and may be far apart": (
        Synthetic().range("one", 0, 100, process=1).range("two", 0, 100, process=2)
        .kernel("k", at=10, process=1, correlation=7).kernel("k", at=10, process=2, correlation=7)
        .kernel("k", at=None, process=1, correlation=8).kernel("k", at=20, process=2, correlation=4_000_000_000),
        ["one", "two", LOST, "two"],
    ),
    "of a runtime call around a driver call the outer one is the launch": (
        Synthetic().range("outer", 0, 12).range("inner", 12, 30)
        .call(15, 5, api="cuLaunchKernel").call(10, 5, duration=10).kernel("k", at=10, correlation=5),
        ["outer"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_belongs_to_the_ranges_at_its_launch(case, tmp_path):
    capture, expected = CASES[case]
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        assert ["/".join(profile.paths[path]) for path in profile.activities()["path_id"]] == expected


def tables_in(text: str) -> list[list[dict[str, str]]]:
    """The tables of a page in Markdown."""
    found = []
    for block in re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
        found.append([dict(zip(head, row, strict=True)) for row in rows])
    return found


def test_the_example_of_the_document_has_the_numbers_that_it_says(tmp_path):
    ranges, launches, sums = tables_in(DOCUMENT.read_text())
    capture = Synthetic()
    for row in ranges:
        capture.range(row["range"], int(row["start"]), int(row["end"]), int(row["thread"]))
    for row in launches:
        capture.kernel(row["kernel"], int(row["launched at"]), thread=int(row["thread"]), duration=int(row["runs for"]))
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        paths = [path_text(profile.paths[path]) for path in profile.activities()["path_id"]]
        table = profile.ranges()[list(sums[0])].astype(str).to_dict("records")
    assert paths == [row["path"] for row in launches]
    assert table == sums


def require_brute_force(profile: kernel_tables.Profile, rows: Rows) -> None:
    """Asserts that attribution is as it is by brute force: of activities, of ranges, and of all their instances."""
    assert [profile.paths[path] for path in profile.attribution.path.tolist()] == rows.paths()
    launched, ranges = rows.at_launch(), profile.capture.ranges
    assert [profile.paths[path] for path in profile.attribution.launch_path.tolist()] == [
        (LOST,) if chain is None else tuple(r.name for r in chain) for chain in launched
    ]
    columns = list(zip(ranges.start.tolist(), ranges.end.tolist(), ranges.thread.tolist(), strict=True))
    for name in {*ranges.names[:5], "no such range"}:
        outermost = [next((r for r in chain or () if r.name == name), None) for chain in launched]
        expected = [None if r is None else (r.start, r.end, r.thread) for r in outermost]
        assert [None if row < 0 else columns[row] for row in profile.enclosing(name).tolist()] == expected
    assert sorted(profile.paths[path] for path in instance_paths(profile, None).tolist()) == sorted(rows.instances())


@pytest.mark.parametrize("path", sorted(CAPTURES.rglob("*.gz")), ids=lambda path: path.name.partition(".")[0])
def test_every_activity_of_a_capture_has_its_ranges(path, tmp_path):
    unpacked = tmp_path / "capture.sqlite"
    with kernel_tables.read(path) as profile:
        if path.suffixes[-2] == ".json":
            return require_brute_force(profile, Rows.of_capture(profile.capture))
        unpacked.write_bytes(gzip.decompress(path.read_bytes()))
        require_brute_force(profile, Rows.of_export(unpacked))


def test_every_activity_of_random_captures_has_its_ranges(tmp_path):
    for seed in range(120):
        path = random_capture(seed).write(tmp_path / "capture.sqlite")
        with kernel_tables.read(path) as profile:
            require_brute_force(profile, Rows.of_export(path))


def test_ranges_and_activities_say_where_they_belong(tmp_path):
    capture = Synthetic().domain(1, "mine").range("backward", 0, 100).range("all_reduce", 10, 40, thread=2, domain=1)
    capture.range("left open", 120, None).kernel("gemm", at=130, start=140, duration=60, thread=3, device=1, stream=14)
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        instances = profile.range_instances().drop(columns=["instance", "path_id"]).to_numpy().tolist()
        activity = profile.activities().drop(columns=["path_id", "class", "duration_ns"]).to_numpy().tolist()
    assert instances == [
        ["backward", "", process_id(1), thread_id(1), 0, 100],
        ["all_reduce", "mine", process_id(1), thread_id(2), 10, 40],
        ["left open", "", process_id(1), thread_id(1), 120, 200],
    ]
    assert activity == [
        ["kernel", "gemm", "left open", 140, 200, process_id(1), thread_id(3), 1, 14, 130],
    ]


def test_ranges_that_are_pushed_and_never_popped_are_refused(tmp_path):
    capture = Synthetic()
    for number in range(1100):
        capture.range("leak", number, None)
    with (
        kernel_tables.read(capture.kernel("k", at=5, start=5000).write(tmp_path / "capture.sqlite")) as profile,
        pytest.raises(ImpossibleCapture, match="1,100 deep: they are opened and not closed") as raised,
    ):
        profile.kernels()
    assert raised.value.findings[0].code == "too_many_open_ranges"


@pytest.mark.parametrize(
    "written",
    [
        "{{'Module': 'model.layers.{}.self_attn', 'Inputs': [[3, 4096]]}}",
        '{{"shape": [1, 2], "module": "model.layers.{}.self_attn"}}',
        "Module(name='model.layers.{}.self_attn', rank=0)", "model.layers.{}.self_attn: [[3, 4096]]",
    ],
)  # fmt: skip
def test_the_layers_of_a_server_are_one_range_by_module(tmp_path, written):
    capture = Synthetic()
    for layer in range(4):
        capture.range(written.format(layer), 10 * layer, 10 * layer + 9).kernel("k", at=10 * layer + 1)
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        assert profile.ranges()[["range", "instances"]].to_numpy().tolist() == [["model.layers.self_attn", 4]]
    with kernel_tables.read(REPORTS / "layerwise.json.gz") as profile:
        assert profile.ranges()[["range", "kernels"]].to_numpy().tolist() == [["model.layers.self_attn", 24]]


def test_other_names_with_numbers_stay(tmp_path):
    names = ["expert.0", "net.0.conv", "f(name)", "step 4", "{'shape': [3, 4]}", "a.1"]
    capture = Synthetic().kernel("k", at=1)
    for place, name in enumerate(names):
        capture.range(name, 10 * place, 10 * place + 5)
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        assert sorted(profile.ranges()["range"]) == sorted(names)
