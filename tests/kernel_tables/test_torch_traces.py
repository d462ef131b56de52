"""JSON of torch.profiler as captures: all formats, what they lack, JSON that is something else."""

import gzip
import json
import os
import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from kernel_tables.__main__ import main
from kernel_tables.diagnosis.calls import FREEING, LAUNCH, WAIT, kind_of
from kernel_tables.errors import ImpossibleCapture, TraceError
from kernel_tables.kineto import events
from kernel_tables.kineto.events import nanoseconds
from kernel_tables.kineto.trace import SIZES, TorchTrace
from kernel_tables.trace import Trace
from tests.kernel_tables.torch_formats import (
    KERNELS_US,
    STYLES,
    kernels_by_brute_force,
    trace_text,
    write_trace,
)

RECENT = STYLES["2026, since a base"]
REAL = os.environ.get("KERNEL_TABLES_TRACES")  # a folder of traces that are not in the repository


@pytest.fixture(params=["msgspec", "json"])
def decoder(request, monkeypatch):
    """Both ways to decode: blocks of events, and single events, as where a block is damaged."""
    if request.param == "json":
        monkeypatch.setattr(events, "decoded_block", lambda text: None)
        monkeypatch.setattr("kernel_tables.kineto.json_stream.decoded_block", lambda text: None)
    return request.param


def kernels(path: Path, **options) -> tuple[int, int]:
    with Trace(path, **options) as trace:
        table = trace.activities()
        table = table[table["kind"] == "kernel"]
    return len(table), int(table["duration_ns"].sum())


@pytest.mark.parametrize("version", STYLES)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_the_time_of_kernels_is_the_sum_over_the_events_in_every_format(tmp_path, decoder, version, suffix):
    path = write_trace(tmp_path / f"trace{suffix}", STYLES[version])
    assert kernels(path) == kernels_by_brute_force(trace_text(STYLES[version]))


@pytest.mark.skipif(not REAL, reason="KERNEL_TABLES_TRACES names no folder")
def test_the_time_of_kernels_is_the_sum_over_the_events_of_real_traces(decoder):
    paths = sorted(Path(REAL).glob("*.json.gz"))
    assert paths
    wrong = [path.name for path in paths if kernels(path) != kernels_by_brute_force(gzip.decompress(path.read_bytes()))]
    assert wrong == []


def test_the_events_of_a_bare_array_and_of_one_line_are_read_too(tmp_path, decoder):
    content = json.loads(trace_text(RECENT))
    (tmp_path / "array.json").write_text(json.dumps(content["traceEvents"]))
    (tmp_path / "line.json").write_text("\ufeff" + json.dumps(content, separators=(",", ":")))
    expected = kernels_by_brute_force(trace_text(RECENT))
    assert kernels(tmp_path / "array.json") == kernels(tmp_path / "line.json") == expected


def test_blocks_end_between_events_wherever_the_text_is_cut(tmp_path, decoder, monkeypatch):
    path = write_trace(tmp_path / "trace.json", RECENT)
    expected = kernels_by_brute_force(path.read_text())
    for size in (1, 7, 64, 301, 1000):
        monkeypatch.setattr("kernel_tables.kineto.json_stream.BLOCK_BYTES", size)
        assert kernels(path) == expected, size


def test_a_comma_that_is_lacking_between_events_is_found_wherever_the_text_is_cut(tmp_path, decoder, monkeypatch):
    text, path = trace_text(RECENT), tmp_path / "trace.json"
    commas = [match.start() for match in re.finditer(r"\},\n  \{", text)]
    assert len(commas) > 10
    for place in commas:
        path.write_text(text[: place + 1] + text[place + 2 :])
        for size in (64, 301, 4 << 20):
            monkeypatch.setattr("kernel_tables.kineto.json_stream.BLOCK_BYTES", size)
            with pytest.raises(TraceError, match="is expected after an event"):
                Trace(path)


def test_a_kernel_has_the_ranges_of_its_call_and_one_without_a_call_has_none(tmp_path):
    with Trace(write_trace(tmp_path / "trace.json.gz", RECENT)) as trace:
        table = trace.activities()
        paths = {name: trace.paths[path] for name, path in zip(table["name"], table["path_id"], strict=True)}
        notes = trace.notes
        assert trace.metadata["CAPTURE_BACKEND"] == "torch"
    shapes = "(4×256, 256×8)"
    assert paths["void kernel0<float>(int, {lambda()#1})"] == ("step", f"aten::op0{shapes}")
    assert paths["void kernel4<float>(int, {lambda()#1})"] == ("step", f"aten::op4{shapes}")
    assert paths["void kernel5<float>(int, {lambda()#1})"] == ("(launched before the capture)",)
    assert any(note.startswith("1 of 6 kernels have no call in the trace") for note in notes)


@pytest.mark.parametrize(
    ("stacks", "reason"), [("0", "with_stack=True records them"), ("1", "compiled models call none")]
)
def test_a_trace_without_modules_says_why(tmp_path, stacks, reason):
    (tmp_path / "trace.json").write_text(trace_text(RECENT).replace('"schemaVersion": 1', f'"with_stack": {stacks}', 1))
    with Trace(tmp_path / "trace.json") as trace:
        assert [note for note in trace.notes if "module" in note] == [
            f"no call of a module is in the trace ({reason}): ranges are annotations of the program and operators"
        ]


def test_replayed_kernels_are_in_the_range_of_their_launch_and_that_is_said(tmp_path):
    (tmp_path / "trace.json").write_text(trace_text(RECENT).replace("cudaLaunchKernel", "cudaGraphLaunch"))
    with Trace(tmp_path / "trace.json") as trace:
        (note,) = (note for note in trace.notes if "replayed" in note)
        assert [found.message[:12] for found in trace.check() if found.code == "nodes_not_recorded"] == ["5 activities"]
    assert note.startswith("5 of 6 kernels ran in replayed CUDA graphs: their range is that of the launch")
    assert note.endswith("kernel-tables record --profiler nsys -- python train.py")


def test_a_trace_in_whole_microseconds_says_so(tmp_path, capsys):
    path = write_trace(tmp_path / "trace.json", STYLES["2022, whole microseconds"])
    assert main(["check", str(path), "--format", "json"]) == 0
    assert "whole_microseconds" in [row["code"] for row in json.loads(capsys.readouterr().out)]
    assert main(["classes", str(path)]) == 0
    assert "trace.json: times are whole microseconds" in capsys.readouterr().err


def test_several_traces_are_the_ranks_of_a_run(tmp_path, capsys):
    paths = [str(write_trace(tmp_path / f"rank{rank}.json", RECENT)) for rank in range(2)]
    assert main(["classes", *paths, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["rank"] for row in rows} == {0, 1}


def test_the_rank_that_a_trace_names_is_among_its_facts(tmp_path):
    text = trace_text(RECENT).replace('"schemaVersion": 1', '"distributedInfo": {"rank": 3, "world_size": 8}', 1)
    (tmp_path / "trace.json").write_text(text)
    with Trace(tmp_path / "trace.json") as trace:
        assert (trace.metadata["RECORDED_RANK"], trace.metadata["RECORDED_RANKS"]) == ("3", "8")


def of_rank(path: Path, rank: int) -> str:
    text = trace_text(RECENT).replace(
        '"schemaVersion": 1', f'"distributedInfo": {{"rank": {rank}, "world_size": 8}}', 1
    )
    path.write_text(text.replace("kernel0", f"kernel_of_rank_{rank}"))
    return str(path)


def test_ranks_have_the_numbers_that_their_traces_name_in_any_order(tmp_path, capsys):
    paths = [of_rank(tmp_path / f"{name}.json", rank) for name, rank in (("a", 5), ("b", 2))]
    assert main(["kernels", *paths, "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert "in the order of the arguments" not in err
    found = [(row["rank"], row["kernel"]) for row in json.loads(out) if "of_rank" in row["kernel"]]
    assert found == [(rank, f"void kernel_of_rank_{rank}<float>(int, {{lambda()#1}})") for rank in (2, 5)]


def test_ranks_that_are_not_named_or_named_twice_are_numbered_in_order_and_that_is_said(tmp_path, capsys):
    unnamed = str(write_trace(tmp_path / "trace.json", RECENT))
    named = [of_rank(tmp_path / f"{name}.json", 3) for name in "ab"]
    for paths in ([named[0], unnamed], named):
        assert main(["classes", *paths, "--format", "json"]) == 0
        out, err = capsys.readouterr()
        assert {row["rank"] for row in json.loads(out)} == {0, 1}
        assert "ranks are numbered in the order of the arguments" in err


def only(*categories: str) -> str:
    """The trace with events of these categories alone."""
    content = json.loads(trace_text(RECENT))
    kept = [event for event in content["traceEvents"] if event.get("cat") in categories]
    return json.dumps(content | {"traceEvents": kept})


def test_a_trace_of_the_processor_alone_says_so_and_shows_operators(tmp_path, capsys):
    path = tmp_path / "trace.json"
    path.write_text(only("cpu_op", "user_annotation"))
    assert main(["ranges", str(path), "--format", "json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)[0] | {"gpu_time_ns": 0} == {
        "range": "step", "instances": 1, "kernels": len(KERNELS_US), "gpu_time_ns": 0, "memops": 0, "memop_time_ns": 0,
    }  # fmt: skip
    assert "holds nothing of a GPU" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (only("cuda_runtime", "cpu_op"), "the profiler saw nothing of the GPU"),
        (
            json.dumps({"traceEvents": [{"ph": "i", "cat": "cpu_instant_event", "name": "[memory]"}]}),
            "1 cpu_instant_event",
        ),
        (json.dumps({"traceEvents": [{"ph": "C", "name": "counter"}]}), "without kernels and operators"),
        (json.dumps({"traceEvents": []}), "events by category: none"),
        (json.dumps({"rules": [], "cores": 2}), "JSON without 'traceEvents' (its keys: 'rules', 'cores')"),
        (json.dumps([{"range": "step", "kernels": 3}]), "without kernels and operators"),
        ('"text"', "no JSON"),
        ("", "empty"),
        ("[1, 2]", "an event is not an object"),
    ],
)
def test_json_that_a_command_cannot_serve_is_refused_in_one_line_that_says_what_it_is(tmp_path, capsys, text, said):
    path = tmp_path / "trace.json"
    path.write_text(text)
    assert main(["ranges", str(path)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.startswith("kernel-tables: ") and err.count("\n") == 1


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_timeline_of_ours_is_no_trace(tmp_path, capsys, suffix):
    path, timeline = write_trace(tmp_path / "trace.json", RECENT), tmp_path / f"timeline{suffix}"
    assert main(["trace", str(path), "-o", str(timeline)]) == 0
    assert main(["ranges", str(timeline)]) == 2
    assert "written by `kernel-tables trace`" in capsys.readouterr().err


def test_no_output_is_written_over_a_trace(tmp_path, capsys):
    path = write_trace(tmp_path / "trace.json", RECENT)
    assert main(["trace", str(path), "-o", str(path)]) == 2
    assert path.read_text() == trace_text(RECENT)


COMMANDS = {
    "report": ["report", "{}", "-o", "{}.html"],
    "ranges": ["ranges", "{}", "--tree"],
    "kernels": ["kernels", "{}"],
    "classes": ["classes", "{}"],
    "diagnose": ["diagnose", "{}"],
    "diff": ["diff", "{}", "{}"],
    "check": ["check", "{}"],
    "host": ["host", "{}"],
    "communication": ["communication", "{}"],
    "trace": ["trace", "{}", "-o", "{}.timeline.json.gz"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_a_trace(tmp_path, capsys, command):
    path = write_trace(tmp_path / "trace.json.gz", RECENT)
    assert main([word.format(path) for word in COMMANDS[command]]) == 0


def damaged(place: str) -> str:
    text = trace_text(RECENT)
    return {
        "an unescaped quotation mark": text.replace("void kernel3<float>", 'void "kernel3"<float>'),
        "a control character": text.replace("void kernel3", "void \x01"),
        "a cut": text[: text.index("void kernel3")],
        "a byte that is not UTF-8": text.replace("void kernel3", "void \udcff"),
    }[place]


@pytest.mark.parametrize(
    "place", ["an unescaped quotation mark", "a control character", "a cut", "a byte that is not UTF-8"]
)
def test_damaged_json_gets_its_place_and_on_request_what_comes_before_it(tmp_path, decoder, place):
    path = tmp_path / "trace.json"
    path.write_bytes(damaged(place).encode(errors="surrogateescape"))
    with pytest.raises(ImpossibleCapture, match=r"invalid JSON at byte \d+ \(line \d+, column \d+\): .*--up-to-damage"):
        Trace(path)
    with Trace(path, up_to_damage=True) as trace:
        table = trace.activities()
        names = [name.partition("<")[0] for name in table["name"]]
        assert "read_up_to_damage" in [finding.code for finding in trace.check() if finding.severity == "error"]
    assert names == ["void kernel0", "void kernel1", "void kernel2"]


def test_the_place_of_damage_is_its_byte_line_and_column(tmp_path, decoder):
    path, text = tmp_path / "trace.json", trace_text(RECENT)
    place = text.index("aten::op3")
    path.write_text(text[:place] + "\x02" + text[place:])
    line, column = text.count("\n", 0, place) + 1, place - text.rindex("\n", 0, place)
    with pytest.raises(TraceError, match=rf"at byte {place} \(line {line}, column {column}\)"):
        Trace(path)


@pytest.mark.parametrize("text", ['[] "more"', '{"traceEvents": [], "a": 1} "more"'])
def test_the_place_of_what_follows_a_trace_is_its_byte(tmp_path, text):
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(TraceError, match=f"at byte {text.index('more') - 1} "):
        Trace(tmp_path / "trace.json")


def test_a_gzipped_trace_that_is_cut_off_is_read_up_to_there_on_request(tmp_path, decoder):
    path = tmp_path / "trace.json.gz"
    packed = gzip.compress(trace_text(RECENT).encode(), mtime=0)
    path.write_bytes(packed[: len(packed) // 2])
    with pytest.raises(TraceError, match="the gzip file is cut off"):
        Trace(path)
    with pytest.raises(TraceError, match="a trace without kernels"):
        Trace(path, up_to_damage=True)  # operators come first, and no kernel is among what is left


DAMAGES = 200
PUT_IN = (
    b'"',
    b"\\",
    b"\x00",
    b"\n",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\xff",
    b"null",
    b"1e999",
    b"NaN",
    b"-",
    b"9" * 30,
)


def damaged_by_chance(text: bytes, chance: random.Random) -> bytes:
    """The text cut, or with bytes changed, lost, put in, doubled or exchanged."""
    place, other = chance.randrange(len(text)), chance.randrange(len(text))
    return chance.choice(
        [
            text[:place],
            text[:place] + bytes([chance.randrange(256)]) + text[place + 1 :],
            text[:place] + text[place + chance.randrange(1, 400) :],
            text[:place] + chance.choice(PUT_IN) + text[place:],
            text[:place] + text[max(0, place - 300) :],
            text[:place] + text[other : other + 60] + text[place + 60 :],
        ]
    )


@pytest.mark.parametrize("seed", range(2))
def test_no_damage_ends_in_a_traceback_or_a_figure_of_invalid_json(tmp_path, decoder, seed):
    chance, path = random.Random(seed), tmp_path / "trace.json"
    texts = [trace_text(style).encode() for style in STYLES.values()]
    outcomes = Counter()
    for _ in range(DAMAGES // 2):
        path.write_bytes(text := damaged_by_chance(chance.choice(texts), chance))
        try:
            found = kernels(path)
        except TraceError as error:
            assert "\n" not in str(error)
            outcomes["refused"] += 1
            continue
        assert found == kernels_by_brute_force(text)  # which raises for invalid JSON
        outcomes["read"] += 1
    assert min(outcomes["refused"], outcomes["read"]) > DAMAGES // 20


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        ("hipLaunchKernel", LAUNCH),
        ("hipExtModuleLaunchKernel", LAUNCH),
        ("hipDeviceSynchronize", WAIT),
        ("hipFree", FREEING),
    ],
)
def test_calls_of_hip_do_what_those_of_cuda_do(function, kind):
    assert kind_of(function) == kind


HUGE = 10**30
HOSTILE = {
    "a device without a number": lambda trace: trace["deviceProperties"][0].pop("id"),
    "a huge device": lambda trace: trace["deviceProperties"][0].update(totalGlobalMem=HUGE, id=-HUGE),
    "devices that are none": lambda trace: trace.update(deviceProperties={"a": 1}),
    "a huge base of time": lambda trace: trace.update(baseTimeNanoseconds=HUGE),
    "ranks that are none": lambda trace: trace.update(distributedInfo=[{"rank": HUGE}]),
    "half a pair of surrogates": lambda trace: kernel_of(trace).update(name="\ud800"),
    "huge ids": lambda trace: kernel_of(trace)["args"].update(correlation=HUGE, stream=HUGE, device=-HUGE),
    "ids that are no numbers": lambda trace: kernel_of(trace)["args"].update(correlation=[1], stream="x", device={}),
    "sizes that are none": lambda trace: kernel_of(trace)["args"].update(grid=[1, "a", None], block=7),
    "a huge collective": lambda trace: kernel_of(trace)["args"].update({"Collective name": "x", "In msg nelems": HUGE}),
    "no args": lambda trace: kernel_of(trace).pop("args"),
    "threads that are objects": lambda trace: [event.update(tid={"a": [1]}, pid=[]) for event in trace["traceEvents"]],
    "threads that are no numbers": lambda trace: [event.update(tid="main", pid=-5) for event in trace["traceEvents"]],
}  # fmt: skip


def kernel_of(trace: dict) -> dict:
    return next(event for event in trace["traceEvents"] if event.get("cat") == "kernel")


@pytest.mark.parametrize("change", HOSTILE)
def test_values_that_no_profiler_writes_change_no_time_of_a_kernel(tmp_path, decoder, change):
    path, content = tmp_path / "trace.json", json.loads(trace_text(RECENT))
    HOSTILE[change](content)
    path.write_text(json.dumps(content))
    assert kernels(path) == kernels_by_brute_force(trace_text(RECENT))


def test_a_number_with_a_fraction_is_no_id_and_no_size(tmp_path, decoder):
    path, content = tmp_path / "trace.json", json.loads(trace_text(RECENT))
    kernel_of(content)["args"].update(correlation=1.5, device=3.0, stream=7.5, grid=[1.5, 2, 3], block=[4.0, 5, 6])
    path.write_text(json.dumps(content))
    kernels = TorchTrace(path)["kernel"]
    row = {name: int(column[0]) for name, column in kernels.items()}
    assert (row["correlation"], row["device"], row["stream"]) == (-1, 3, 0)
    assert [row[name] for name in SIZES] == [-1, 2, 3, 4, 5, 6]


def test_a_kernel_that_ends_a_nanosecond_before_the_first_event_is_refused(tmp_path, decoder):
    path, content = tmp_path / "trace.json", json.loads(trace_text(RECENT))
    kernel_of(content).update(ts=min(event["ts"] for event in content["traceEvents"]), dur=-0.001)
    path.write_text(json.dumps(content))
    with pytest.raises(TraceError):
        kernels(path)


def test_a_trace_whose_kernels_take_no_time_is_diagnosed(tmp_path, capsys):
    content = json.loads(trace_text(RECENT))
    alone = kernel_of(content) | {"dur": 0}
    (tmp_path / "trace.json").write_text(json.dumps(content | {"traceEvents": [alone]}))
    for command in ("diagnose", "ranges", "check"):
        assert main([command, str(tmp_path / "trace.json")]) in (0, 1)


@pytest.mark.parametrize(("key", "value"), [("ts", 9e18), ("ts", "soon"), ("dur", -5), ("dur", None), ("dur", 1e300)])
def test_a_kernel_with_an_impossible_time_is_refused(tmp_path, decoder, key, value):
    path, content = tmp_path / "trace.json", json.loads(trace_text(RECENT))
    kernel_of(content)[key] = value
    path.write_text(json.dumps(content))
    with pytest.raises(TraceError):
        kernels(path)


def test_a_wrong_number_among_many_is_found_at_once():
    began = time.process_time()
    with pytest.raises(ValueError, match="'x' is not a time"):
        nanoseconds(b"171219549551968.049 " * 26 + b"x ")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [("0", 0), ("1.5", 1500), ("-2.001", -2001), ("1712195495519689.049", 1712195495519689049), ("1e3", 1_000_000),
     (".5", 500), ("0.0004", 0), ("0.0006", 1), ("8999999999999999.999", 8999999999999999999)],
)  # fmt: skip
def test_microseconds_become_the_nanoseconds_that_they_are(text, expected_ns):
    for others in (b"", b"7 ", b"7.125 ", b"7.1 "):  # numbers of one kind are converted together
        assert nanoseconds(others + text.encode() + b" ")[-1] == expected_ns
