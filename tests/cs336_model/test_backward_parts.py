"""The backward pass by part of the model, held against what PyTorch's own profiler says of the same steps."""

import json

import pytest
import torch
from torch.autograd.profiler import profile

from cs336_model import ranges
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.effects import process_settings
from tests.cs336_model.specs import changed

CPU = torch.device("cpu")
OWN_RANGES = "user_annotation"
FORWARD_BACKWARD_LINKS = "fwdbwd"
NODE = "autograd::engine::evaluate_function: "


def trace_of_two_steps(values: dict, folder, **changes) -> list[dict]:
    """The events of a Chrome trace that PyTorch's profiler made of a changed run in the ranges of a capture."""
    spec = read_spec(json.dumps(changed(values, mode="forward_backward", **changes)))
    ranges.emit_ranges("record_function")
    with process_settings(spec):
        subject = make_subject(spec, CPU)
        with profile(use_kineto=True) as recording:
            run_steps(subject, 2, PhaseClock(CPU, ranges.MEASURE, Progress()))
    recording.export_chrome_trace(str(folder / "trace.json"))
    return json.loads((folder / "trace.json").read_text())["traceEvents"]


class Timeline:
    """The events of one thread, and which of its ranges are open at a time."""

    def __init__(self, events: list[dict]) -> None:
        self.operations = [event for event in events if event.get("cat") == "cpu_op"]
        self.ranges = sorted(
            (event for event in events if event.get("cat") == OWN_RANGES),
            key=lambda event: (event["ts"], -event["dur"], event["args"]["External id"]),
        )
        self.links = [event for event in events if event.get("cat") == FORWARD_BACKWARD_LINKS]

    def path(self, time: float) -> tuple[str, ...]:
        return tuple(
            event["name"] for event in self.ranges if event["ts"] <= time < event["ts"] + event["dur"]
        )  # fmt: skip

    def inside(self, outer: dict) -> list[dict]:
        end = outer["ts"] + outer["dur"]
        return [event for event in self.operations if event is not outer and outer["ts"] <= event["ts"] < end]


def part_of_forward(path: tuple[str, ...]) -> tuple[str, ...]:
    """What follows measure > step, without the name of the forward pass."""
    return path[3:] if path[2] == "forward" else path[2:]


@pytest.mark.parametrize(
    "changes", [{}, {"checkpoint": "1"}, {"checkpoint": "2"}, {"attention": "flash"}, {"precision": "bf16"}], ids=str
)
def test_every_backward_operation_has_the_part_of_the_forward_operation_that_pytorch_links_it_to(
    spec_values, tmp_path, changes
):
    timeline = Timeline(trace_of_two_steps(spec_values, tmp_path, **changes))
    starts = {link["id"]: link["ts"] for link in timeline.links if link["ph"] == "s"}
    linked = {link["ts"]: starts[link["id"]] for link in timeline.links if link["ph"] == "f"}
    compared = 0
    for node in timeline.operations:
        if not node["name"].startswith(NODE):
            continue
        inside = timeline.inside(node)  # the node's own function, which is linked, and the sum of its gradient
        links = [
            linked[event["ts"]]
            for event in inside
            if node["name"] == f"{NODE}{event['name']}" and event["ts"] in linked
        ]
        for event in inside if links else []:
            path = timeline.path(event["ts"])
            if event["name"].startswith("aten::") and "recomputation" not in path:
                part = part_of_forward(timeline.path(links[0]))
                assert path == ("measure", "step", "backward", *part), (node["name"], event["name"])
                compared += 1
    assert compared > 100


def test_all_parts_of_the_forward_pass_that_compute_have_a_backward_pass(spec_values, tmp_path):
    timeline = Timeline(trace_of_two_steps(spec_values, tmp_path))
    paths = {
        timeline.path(operation["ts"]) for operation in timeline.operations if operation["name"].startswith("aten::")
    }
    forward = {part_of_forward(path) for path in paths if path[2:3] in {("forward",), ("loss",)}}
    backward = {path[3:] for path in paths if path[2:3] == ("backward",)}
    assert backward == forward - {("block", "residual")}  # a sum passes its gradient on
    assert ("block", "attention", "scaled dot product attention", "computing softmax") in backward
