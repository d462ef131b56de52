"""The record of every allocation: pairs of allocation and release, ranges, addresses, and what is published."""

import gzip
import json
import random
from contextlib import nullcontext

import pytest
import torch

from cs336_model import ranges
from cs336_model.arithmetic.flops import shape_of
from cs336_model.arithmetic.memory import block_gradient_bytes, residual_bytes, saved_activation_bytes
from cs336_model.program import benchmark
from cs336_model.program.memory.allocator import (
    AllocatorRecorder,
    events_of_trace,
    last_failed_allocation,
    publishable_snapshot,
)
from cs336_model.program.memory.cpu import with_unseen_releases
from cs336_model.program.memory.history import (
    AllocatorEvent,
    AllocatorRecording,
    FailedAllocation,
    RecordedRange,
    innermost_ranges,
    pair_releases,
)
from cs336_model.program.memory.operations import published_path
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import make_subject
from profile_grid.stages.memory.history import history_of
from profile_grid.stages.memory.tables import tables_of_history
from tests.cs336_model.specs import changed


def made(address: int, size: int = 8, at: float = 0.0) -> AllocatorEvent:
    return AllocatorEvent(True, address, size, at)


def freed(address: int, size: int = 8, at: float = 0.0) -> AllocatorEvent:
    return AllocatorEvent(False, address, size, at)


def test_an_address_that_is_used_again_is_another_allocation():
    releases, live = pair_releases([made(1), made(2), freed(1), made(1), freed(2)])
    assert releases == {0: 2, 1: 4, 3: None}
    assert live == {1: 3}


def test_a_release_of_what_was_allocated_before_the_recording_is_no_allocation_of_it():
    assert pair_releases([freed(7), made(7)]) == ({1: None}, {7: 1})


def test_memory_that_is_given_out_twice_is_an_error():
    with pytest.raises(ValueError, match="event 1: memory is allocated where an allocation is live"):
        pair_releases([made(1), made(1)])


@pytest.mark.parametrize("seed", range(5))
def test_the_live_bytes_of_all_pairs_are_those_of_a_walk_over_the_events(seed):
    chance, events, live, walked = random.Random(seed), [], {}, []
    for _ in range(200):
        if live and chance.random() < 0.45:
            address = chance.choice(list(live))
            events.append(freed(address, live.pop(address)))
        else:
            address, size = (
                chance.choice([number for number in range(40) if number not in live]),
                chance.randrange(1, 100),
            )
            live[address] = size
            events.append(made(address, size))
        walked.append(sum(live.values()))
    releases, at_end = pair_releases(events)
    for number, expected in enumerate(walked):
        alive = [made for made, freed in releases.items() if made <= number and (freed is None or freed > number)]
        assert sum(events[event].size for event in alive) == expected
    assert set(at_end) == set(live)


def test_an_event_belongs_to_the_innermost_range_that_is_open():
    ranges = [
        RecordedRange("step", None, 1, 6),
        RecordedRange("forward", 0, 2, 5),
        RecordedRange("block", 1, 3, 4),
        RecordedRange("empty", 1, 4, 4),
    ]
    assert innermost_ranges(ranges, 7) == [None, 0, 1, 2, 1, 0, None]


def test_what_is_written_holds_no_address():
    history = AllocatorRecording(
        [made(0x7F00_1234, 64, 10.0), made(0x7F00_9999, 8, 12.5), freed(0x7F00_9999, 8, 13.0)],
        [RecordedRange("step", None, 1, 3)], {"parameters": [0x7F00_1234]}, {"requested_peak": 72},
    )  # fmt: skip
    record = history.as_record()
    assert record["allocations"] == {
        "bytes": [64, 8], "made": [0, 1], "freed": [None, 2], "range": [None, 0], "operator": [None, None],
        "line": [None, None], "held": ["parameters", None],
    }  # fmt: skip
    assert record["time_us"] == [0.0, 2.5, 3.0]
    assert str(0x7F00_1234) not in json.dumps(record)


TRACE = [  # of a GPU: a model's weight, a segment for the first product, and a block that another stream still reads
    {"action": "segment_alloc", "addr": 4096, "size": 2097152, "stream": 0, "time_us": 1, "frames": []},
    {"action": "alloc", "addr": 4096, "size": 1000, "stream": 0, "time_us": 2, "frames": []},
    {"action": "alloc", "addr": 8192, "size": 500, "stream": 0, "time_us": 3, "frames": []},
    {"action": "free_requested", "addr": 8192, "size": 500, "stream": 0, "time_us": 4, "frames": []},
    {"action": "free_completed", "addr": 8192, "size": 500, "stream": 0, "time_us": 5, "frames": []},
    {"action": "alloc", "addr": 8192, "size": 700, "stream": 0, "time_us": 6, "frames": []},
    {"action": "oom", "size": 10**12, "device_free": 5, "stream": 0, "time_us": 7, "frames": []},
]


def test_of_an_allocators_trace_the_allocations_and_completed_releases_count_at_their_requested_size():
    events = events_of_trace(TRACE)
    assert [(event.allocates, event.size) for event in events] == [(True, 1000), (True, 500), (False, 500), (True, 700)]
    releases, _ = pair_releases(events)
    assert releases == {0: None, 1: 2, 3: None}


def test_a_request_that_was_not_met_is_told_with_what_came_before_it_and_the_range_that_it_ended():
    unwound = {"action": "free_completed", "addr": 4096, "size": 1000, "stream": 0, "time_us": 8, "frames": []}
    ranges = [
        RecordedRange("step", None, 1, 5, True),
        RecordedRange("norm", 0, 2, 4),
        RecordedRange("block", 0, 4, 5, True),
    ]
    assert last_failed_allocation([*TRACE, unwound], ranges) == FailedAllocation(4, 10**12, 5, 2)
    assert last_failed_allocation(TRACE, ranges[1:2]) == FailedAllocation(4, 10**12, 5, None)
    assert last_failed_allocation(TRACE[:-1], ranges) is None


class FakeAllocator:
    """PyTorch's caching allocator as far as the recorder asks it: counters, and a trace of what happened."""

    def __init__(self, monkeypatch) -> None:
        self.allocations = self.releases = 7  # before the recording
        self.trace, self.recording = [], []
        counted = lambda device: {  # noqa: E731
            "allocation": {"all": {"allocated": self.allocations}}, "active": {"all": {"freed": self.releases}},
        }  # fmt: skip
        peaks = {"requested_bytes.all.peak": 90, "allocated_bytes.all.peak": 1024, "reserved_bytes.all.peak": 2048}
        for name, function in {
            "init": lambda: None, "memory_stats_as_nested_dict": counted, "memory_stats": lambda device: peaks,
            "mem_get_info": lambda device: (1000, 5000),
        }.items():  # fmt: skip
            assert hasattr(torch.cuda, name)
            monkeypatch.setattr(torch.cuda, name, function)
        snapshot = lambda device: {"segments": [], "device_traces": [self.trace]}  # noqa: E731
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", snapshot)
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", lambda *args, **_: self.recording.append(args))

    def alloc(self, address: int, size: int) -> None:
        self.allocations += 1
        self.trace.append({"action": "alloc", "addr": address, "size": size, "time_us": len(self.trace), "frames": []})

    def free(self, address: int, size: int) -> None:
        self.releases += 1
        for action in ("free_requested", "free_completed"):
            entry = {"action": action, "addr": address, "size": size, "time_us": len(self.trace), "frames": []}
            self.trace.append(entry)


def test_on_a_gpu_the_allocators_counters_tell_the_range_of_every_allocation(monkeypatch):
    allocator = FakeAllocator(monkeypatch)
    recorder = AllocatorRecorder(torch.device("cuda", 0))
    allocator.alloc(16, 50)
    ranges.emit_ranges(recorder.emitter)
    with ranges.span("step"):
        with ranges.span("forward"), recorder.operation("aten::mm", "model.py:7"):
            allocator.alloc(32, 40)
        with ranges.span("backward"):
            allocator.free(32, 40)
            allocator.alloc(32, 30)
    record = recorder.finish({"parameters": [16]}).as_record()
    assert allocator.recording == [(), (None,)]  # begun, then ended
    names = [
        record["ranges"]["name"][range_number] if range_number is not None else None
        for range_number in record["allocations"]["range"]
    ]
    assert names == [None, "forward", "backward"]
    made_by = zip(record["allocations"]["operator"], record["allocations"]["line"], strict=True)
    assert [*made_by] == [(None, None), ("aten::mm", "model.py:7"), (None, None)]
    assert record["allocations"]["held"] == ["parameters", None, None]
    assert record["allocations"]["freed"] == [None, 2, None]
    assert record["counters"] == {
        "requested_peak": 90, "allocated_peak": 1024, "reserved_peak": 2048, "driver_used": 4000,
    }  # fmt: skip
    assert [entry["action"] for entry in recorder.snapshot()["device_traces"][0]][:2] == ["alloc", "alloc"]


class Exhausting(torch.nn.Module):
    """A model whose second forward pass asks an allocator for more than there is."""

    def __init__(self, allocator: FakeAllocator) -> None:
        super().__init__()
        self.weight, self.allocator, self.calls = torch.nn.Parameter(torch.zeros(50)), allocator, 0
        allocator.alloc(self.weight.data_ptr(), 200)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        with ranges.span("block"):
            self.allocator.alloc(8, 30 * self.calls)
            if self.calls == 2:
                self.allocator.trace.append({"action": "oom", "size": 900, "device_free": 70, "time_us": 9})
                self.allocator.free(8, 60)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 900 bytes.")
            self.allocator.free(8, 30)
        return self.weight.expand(*tokens.shape, -1)


def test_a_run_that_runs_out_of_memory_leaves_its_history_up_to_then(
    run_benchmark, their_module, monkeypatch, tmp_path
):
    allocator = FakeAllocator(monkeypatch)
    monkeypatch.setattr(benchmark, "recorder_on", lambda device: AllocatorRecorder(torch.device("cuda", 0)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    their_module.Exhausting = lambda **sizes: Exhausting(allocator)
    path = tmp_path / "memory_history.json.gz"
    result = run_benchmark("--profiler", "memory", "--capture", str(path), constructor="their_module:Exhausting")
    assert result["status"] == "out_of_memory"
    record = json.loads(gzip.decompress(path.read_bytes()))
    names = record["ranges"]["name"]
    assert record["unmet"] == {"event": 4, "requested_bytes": 900, "free_bytes": 70, "range": len(names) - 1}
    assert names[-1] == "block" and "measure" in names and record["allocations"]["held"][0] == "parameters"


def test_a_snapshot_names_no_folder_of_the_machine_and_keeps_nothing_that_it_does_not_know():
    frames = [
        {"filename": "/home/ada/course/cs336_model/model/transformer.py", "line": 7, "name": "forward"},
        {"filename": "/home/ada/env/site-packages/torch/nn/modules/module.py", "line": 9, "name": "call"},
        {"filename": "/home/ada/secret/my_model.py", "line": 1, "name": "f", "fx_original_trace": "/home/ada/x.py"},
    ]  # fmt: skip
    block = {"address": 1, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": frames}
    snapshot = {
        "segments": [{"address": 1, "total_size": 2, "stream": 0, "blocks": [block], "user_metadata": "ada"}],
        "device_traces": [[TRACE[1] | {"frames": frames, "user_metadata": "ada", "compile_context": "ada"}]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "/home/ada"}, "external_annotations": ["ada"],
    }  # fmt: skip
    kept = publishable_snapshot(snapshot)
    assert "ada" not in json.dumps(kept) and "home" not in json.dumps(kept)
    names = [frame["filename"] for frame in kept["device_traces"][0][0]["frames"]]
    assert names == ["cs336_model/model/transformer.py", "torch/nn/modules/module.py", "my_model.py"]
    assert kept["segments"][0]["blocks"][0]["requested_size"] == 500


def test_a_file_of_the_standard_library_or_of_nowhere_keeps_its_last_name():
    assert published_path("/usr/lib/python3.12/contextlib.py") == "contextlib.py"
    assert published_path("<string>") == "<string>" and published_path("") == ""


def test_the_recording_of_a_run_that_pytorch_refuses_is_stopped_since_an_open_one_crashes_the_process(
    run_benchmark, tmp_path
):
    result = run_benchmark("--profiler", "memory", "--capture", str(tmp_path / "history"), attention="cudnn")
    assert result["status"] == "unsupported" and not torch.autograd._profiler_enabled()


@pytest.fixture
def recorded(run_benchmark, tmp_path):
    """A function that records the memory of a run in this process, and gives its result and history."""

    def record(**changes):
        path = tmp_path / "memory_history.json.gz"
        result = run_benchmark("--profiler", "memory", "--capture", str(path), **changes)
        return result, json.loads(gzip.decompress(path.read_bytes()))

    return record


def replayed_peak(record: dict) -> int:
    """The most bytes that are live at once in a record, by a walk over its events."""
    columns = record["allocations"]
    change = [0] * (len(record["time_us"]) + 1)
    for size, made_by, freed_by in zip(columns["bytes"], columns["made"], columns["freed"], strict=True):
        change[made_by] += size
        change[-1 if freed_by is None else freed_by] -= size
    peak = live = 0
    for change_bytes in change[:-1]:
        live += change_bytes
        peak = max(peak, live)
    return peak


def test_on_a_processor_the_replay_reaches_the_peak_that_the_allocator_counted(recorded):
    result, record = recorded()
    assert result["status"] == "complete" and len(result["step_seconds"]) == 2
    assert replayed_peak(record) == record["counters"]["requested_peak"] > 0


def test_what_the_model_the_gradients_and_the_optimizer_hold_is_found_to_the_byte(recorded):
    result, record = recorded()
    columns, held = record["allocations"], {}
    for size, name in zip(columns["bytes"], columns["held"], strict=True):
        held[name] = held.get(name, 0) + size
    weights = 4 * result["parameters"]
    assert (held["parameters"], held["gradients"], held["optimizer state"]) == (weights, weights, 2 * weights)


@pytest.mark.parametrize("attention", ["eager", "flash"])
def test_what_a_forward_pass_keeps_is_what_follows_from_the_shapes(recorded, attention):
    result, record = recorded(attention=attention, warmup_steps=0, measured_steps=1, mode="forward_backward")
    names, opened = record["ranges"]["name"], record["ranges"]["opened"]
    backward = opened[names.index("backward")]
    columns = record["allocations"]
    live = zip(columns["bytes"], columns["made"], columns["freed"], columns["held"], strict=True)
    kept = sum(
        size for size, first, last, held in live if first < backward and (last is None or last >= backward) and not held
    )
    expected = saved_activation_bytes(shape_of(result["spec"]), result["spec"]["dimensions"])
    assert 0 <= kept - expected <= 0.01 * expected, (kept, expected)


def test_a_recording_on_a_processor_says_what_it_cannot_tell(recorded):
    _, record = recorded(mode="forward")
    assert any("nothing in reserve" in line for line in record["cannot"])
    assert record["counters"]["reserved_peak"] is None


def test_memory_that_is_given_out_again_was_released_before_by_a_thread_that_is_not_seen():
    seen = [(1, made(7, 64)), (2, made(7, 32)), (3, freed(7, 32))]
    complete = with_unseen_releases(seen)
    assert [(event.allocates, event.size) for _, event in complete] == [
        (True, 64),
        (False, 64),
        (True, 32),
        (False, 32),
    ]
    assert pair_releases([event for _, event in complete]) == ({0: 1, 2: 3}, {})


@pytest.fixture(scope="module")
def three_blocks(tmp_path_factory):
    """A function that records a forward and a backward pass of three blocks, and gives the tables of its blocks and
    activations, and the specification."""

    def record(spec_values, **changes):
        path = tmp_path_factory.mktemp("memory") / "memory_history.json.gz"
        changes = {"warmup_steps": 0, "measured_steps": 1, "mode": "forward_backward"} | changes
        values = changed(spec_values, sizes=spec_values["sizes"] | {"num_layers": 3}, **changes)
        options = ["--spec", json.dumps(values), "--output", str(path.with_name("result.json"))]
        benchmark.main([*options, "--profiler", "memory", "--capture", str(path)])
        record = json.loads(gzip.decompress(path.read_bytes()))
        record["counters"]["requested_peak"] = replayed_peak(record)  # PyTorch counts on from earlier recordings
        tables = tables_of_history(history_of(record))[1]
        return tables, read_spec(json.dumps(values))

    return record


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_one_block_saves_is_what_autograd_packs_while_it_runs(three_blocks, spec_values, precision):
    tables, spec = three_blocks(spec_values, precision=precision)
    subject, packed = make_subject(spec, torch.device("cpu")), [{}, {}, {}]
    inside = []
    for number, block in enumerate(subject.model.blocks):
        block.register_forward_pre_hook(lambda module, inputs, number=number: inside.append(number))
        block.register_forward_hook(lambda module, inputs, output: inside.clear())

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if inside:
            packed[inside[-1]][tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), subject.autocast():
        subject.model(subject.inputs).sum()
    own = (*subject.parameters, *subject.model.buffers())
    standing = {tensor.untyped_storage()._cdata for tensor in own}
    expected = [
        sum(tensor.untyped_storage().nbytes() for key, tensor in tensors.items() if key not in standing)
        for tensors in packed
    ]
    kept = tables["memory_activations"]
    by_operator = kept[kept["operator"] != ""].groupby("block")["bytes"].sum()
    assert by_operator.loc[0:].tolist() == expected
    number = 8  # a Python number that a product keeps as a tensor of the host, which autograd does not pack
    assert tables["memory_blocks"]["saved_bytes"].tolist() == [size + number for size in expected]
    softmax = kept[(kept["part"] == "computing softmax") & (kept["block"] == 1)]
    assert {"aten::exp", "aten::sum"} <= set(softmax["operator"])
    assert all(line.startswith("cs336_model/model/functional.py:") for line in softmax["line"])


def test_the_gradients_of_a_block_are_its_parameters_and_what_it_kept_is_freed(three_blocks, spec_values):
    tables, spec = three_blocks(spec_values)
    blocks, shape = tables["memory_blocks"].set_index("block"), shape_of(vars(spec))
    assert blocks["gradient_bytes"].tolist() == [block_gradient_bytes(shape, spec.dimensions)] * 3
    middle = blocks.loc[1]
    assert middle["backward_change_bytes"] == middle["gradient_bytes"] - middle["saved_bytes"]
    assert blocks["residual_bytes"].tolist() == [residual_bytes(shape, spec.dimensions)] * 3
    again = three_blocks(spec_values, checkpoint="2")[0]["memory_blocks"]
    assert again["backward_change_bytes"].isna().all() and again["gradient_bytes"].isna().all()


TYPES = ["modules", "parameters", "output", "gradients"]


@pytest.mark.parametrize(("precision", "lower"), [("bf16", "bfloat16"), ("fp16", "float16")])
def test_the_types_of_a_step_under_autocast_are_those_that_pytorch_gives(three_blocks, spec_values, precision, lower):
    types = three_blocks(spec_values, precision=precision)[0]["module_dtypes"].set_index("module")
    assert types.loc["blocks.*.feed_forward.up", TYPES].tolist() == [3, "float32", lower, "float32"]
    assert types.loc["blocks.*.attention_norm", "output"] == "float32"
    assert types.loc[["(logits)", "(loss)"], "output"].tolist() == [lower, "float32"]


def test_the_types_of_a_step_with_bf16_weights_are_bf16(three_blocks, spec_values):
    lower = three_blocks(spec_values, precision="bf16-weights")[0]["module_dtypes"].set_index("module")
    assert lower.loc["head", TYPES].tolist() == [1, "bfloat16", "bfloat16", "bfloat16"]


def test_operations_are_followed_without_a_change_of_the_peak(recorded, monkeypatch):
    _, record = recorded()
    monkeypatch.setattr(benchmark, "followed_operations", lambda spec, around: nullcontext())
    _, without = recorded()
    assert replayed_peak(record) == replayed_peak(without)
    assert set(without["allocations"]["operator"]) == {None}
    large = [
        operator
        for size, operator in zip(record["allocations"]["bytes"], record["allocations"]["operator"], strict=True)
        if size > 64
    ]
    assert None not in large


def test_what_an_earlier_profile_left_in_the_count_of_the_allocator_is_no_part_of_the_peak(recorded):
    with torch.profiler.profile(profile_memory=True):
        left = torch.ones(1_000_000)
    _, record = recorded()
    assert replayed_peak(record) == record["counters"]["requested_peak"] < left.nbytes
