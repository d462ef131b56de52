"""What the doctor says of made-up machines, and what it reckons a grid will take."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cs336_model.arithmetic.checkpoints import recomputed_flops
from cs336_model.arithmetic.flops import shape_of
from profile_grid.host.processes.job import Problem
from profile_grid.planning import estimates
from profile_grid.planning.doctor import Gpu, Host, Trial, capture_lines, first_failure, report
from profile_grid.planning.smoke import SmokeCapture, smoke_specification
from profile_grid.stages.capture.capture_problems import NSYS_TOO_OLD
from profile_grid.stages.capture.nsys_capture import NSYS_MISSING
from profile_grid.study.runs import grid_plan
from profile_grid.study.stages import COUNTERS, ENERGY
from tests.profile_grid.made_up_results import CAPTURE, TIMING, changed

GIB = 2**30
NOWHERE = Path("no folder of results")
H200 = Gpu("NVIDIA H200", "580.159.04", "13.0", 140 * GIB, 139 * GIB)
GPU_HOST = Host(H200, "2025.3.1.0", "0.2.14", 4, 200 * GIB, 100 * GIB)
LAPTOP = Host(None, None, "0.2.14", 2, 50 * GIB, 8 * GIB)
ON_H200 = {
    "device": "cuda",
    "device_name": "NVIDIA H200",
    "torch": "2.11.0",
    "cuda": "13.0",
    "python": "3.12.3",
    "cores": 16,
}
ON_CPU = {
    "device": "cpu",
    "device_name": "Some CPU",
    "torch": "2.13.0+cpu",
    "cuda": None,
    "python": "3.11.2",
    "cores": 2,
}
WHOLE = SmokeCapture("nsys", ON_H200, ranges=23, kernels=70, seconds=6.0)
WHOLE_ON_CPU = SmokeCapture("torch", ON_CPU, ranges=23, kernels=81, seconds=4.0)
SHAPES = {
    "small": {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
    "10B": {"d_model": 4608, "d_ff": 12288, "num_layers": 50, "num_heads": 36},
}


def plan(
    models=("small",),
    modes=("train_step",),
    device="auto",
    backend="auto",
    constructor="cs336_model.model:TransformerLM",
    counted="",
):
    return grid_plan(
        {
            "grid": "g",
            "grids": {"g": [{"models": list(models), "context_lengths": [512], "modes": list(modes)}]},
            "models": SHAPES,
            "batch_size": 4,
            "vocab_size": 10000,
            "precision": "fp32",
            "seed": 0,
            "device": device,
            "program": {"constructor": constructor},
            "timing": {"warmup_steps": 5, "measured_steps": 10},
            "capture": {"backend": backend, "warmup_steps": 3, "measured_steps": 3},
            "counters": {"runs": counted},
        }
    )


def lines(host=GPU_HOST, smoke=WHOLE, planned=None, wanted="auto"):
    planned = planned or plan()
    pace = estimates.expected_pace(NOWHERE, smoke.seconds, (smoke.machine or {}).get("device_name"), ["fp32"])
    left = estimates.remaining_measurements(planned["runs"], NOWHERE)
    trial = Trial(smoke.machine, smoke.seconds, capture_lines(host, smoke, wanted, left))
    return report(host, trial, planned, left, pace)


def said(topic, found):
    return next(line for line in found if line.topic == topic)


def test_a_machine_that_can_do_the_grid_gets_ten_lines_and_no_failure():
    found = lines()
    assert len(found) == 10
    assert first_failure(found) is None
    assert said("GPU", found).text == "NVIDIA H200, 139.0 of 140.0 GiB free, driver 580.159.04 (CUDA 13.0)"
    assert said("captures", found).text == "auto is Nsight Systems here"


def test_a_gpu_that_tells_no_memory_of_its_own_is_no_failure():
    shared = replace(H200, name="NVIDIA GB10", total_bytes=None, free_bytes=None)
    found = lines(replace(GPU_HOST, gpu=shared))
    assert first_failure(found) is None
    assert said("GPU", found).text.startswith("NVIDIA GB10, memory unknown, driver")
    assert said("memory", found).text == "unknown"


def test_on_a_laptop_auto_is_pytorchs_profiler_and_the_lines_say_why():
    found = lines(LAPTOP, WHOLE_ON_CPU)
    assert first_failure(found) is None
    assert said("captures", found).text == "auto is PyTorch's own profiler here: no GPU and nsys"


def test_nsys_that_is_wanted_and_not_there_is_the_failure_and_says_how_to_get_it():
    missing = SmokeCapture("nsys", None, 0, 0, 0.0, problem=NSYS_MISSING)
    host = Host(H200, None, "0.2.14", 4, 200 * GIB, 100 * GIB)
    failure = first_failure(lines(host, missing, wanted="nsys"))
    assert failure.topic == "captures"
    assert "install Nsight Systems" in failure.text


def test_ranges_that_nsys_does_not_see_are_a_failure_and_say_which_nvtx_to_install():
    blind = SmokeCapture(
        "nsys", ON_H200, 0, 70, 6.0, problem=Problem("no_ranges", "no NVTX range was recorded; 0 ranges 'step'")
    )
    failure = first_failure(lines(smoke=blind))
    assert failure.topic == "nvtx"
    assert failure.text == "0.2.14 is not seen by nsys 2025.3.1.0: pip install 'nvtx<0.2.12', or a newer nsys"


def test_a_smoke_capture_without_kernels_is_a_failure_with_the_finding():
    empty = SmokeCapture("nsys", ON_H200, 23, 0, 6.0, problem=Problem("no_kernels", "no kernel was recorded"))
    failure = first_failure(lines(smoke=empty))
    assert failure.topic == "smoke"
    assert failure.text.endswith("incomplete capture: no kernel was recorded")


def test_a_program_that_crashes_is_told_in_one_line_by_what_it_said_last():
    crashed = SmokeCapture("torch", None, 0, 0, 2.0, problem=Problem("crashed", "it crashed", "ImportError: no torch"))
    assert first_failure(lines(LAPTOP, crashed)).text.endswith("incomplete capture: ImportError: no torch")


def test_a_driver_that_is_newer_than_nsys_is_said():
    found = lines(
        smoke=SmokeCapture("nsys", ON_H200, 23, 70, 6.0, warnings=(Problem(NSYS_TOO_OLD, "a newer nsys would"),))
    )
    assert said("nsys", found).text == "2025.3.1.0; does not know the driver's CUDA 13.0"
    assert first_failure(found) is None


def test_a_gpu_that_is_asked_for_and_not_there_is_a_failure():
    assert first_failure(lines(LAPTOP, WHOLE_ON_CPU, plan(device="cuda"))).topic == "GPU"


def test_too_little_disk_is_a_failure():
    host = Host(H200, "2025.3.1.0", "0.2.14", 4, 1000, 100 * GIB)
    assert first_failure(lines(host)).topic == "disk"


def test_runs_that_do_not_fit_are_named_and_are_no_failure():
    found = lines(planned=plan(models=["small", "10B"], modes=["forward", "train_step"]))
    assert first_failure(found) is None
    assert said("memory", found).text.endswith("1 of 4 runs will end as out of memory: 10B_ctx512_train_step")
    assert "10B_ctx512_train_step needs about " in said("memory", found).text


def test_a_run_that_will_not_fit_costs_its_start_only():
    measurements = estimates.remaining_measurements(plan(models=["10B"])["runs"], NOWHERE)
    pace = estimates.Pace({"timing": 2.0, "capture": 6.0}, {"fp32": 1e12}, "made up")
    assert estimates.seconds_needed(measurements, pace, 140 * GIB) == 8.0
    assert estimates.seconds_needed(measurements, pace, 10**15) > 8.0


RECORDS = {"timing": TIMING, "capture": CAPTURE, "counters": CAPTURE}


def write_result(runs, run, stage, **changes):
    (runs / run).mkdir(exist_ok=True)
    (runs / run / f"{stage}.json").write_text(json.dumps(changed(RECORDS[stage], **changes)))


def test_what_was_measured_with_the_same_settings_is_not_counted_again(tmp_path):
    of_plan = plan(models=["small"], modes=["forward", "train_step"])["runs"]
    write_result(tmp_path, "small_ctx512_forward", "timing", specification=of_plan[0]["specifications"]["timing"])
    write_result(tmp_path, "small_ctx512_forward", "capture", specification={"other": "settings"})
    write_result(tmp_path, "small_ctx512_train_step", "timing", specification=None)  # damaged
    left = [
        (stage.name, told["program"]["dimensions"]["mode"])
        for stage, told in estimates.remaining_measurements(of_plan, tmp_path)
    ]
    assert left == [("capture", "forward"), ("timing", "train_step"), ("capture", "train_step")]


def test_the_pace_comes_from_earlier_measurements_on_the_same_device(tmp_path):
    entry = plan(modes=["forward"])["runs"][0]
    for stage, job_s in (("timing", 5.0), ("capture", 9.0)):
        program = entry["specifications"][stage]["program"]
        write_result(
            tmp_path, entry["run"], stage,
            program__spec=program, program__machine__device_name="NVIDIA H200", seconds={"all": job_s},
            program__cost_seconds={"warmup": 1.0, "measured": 2.0}, program__phase_seconds={},
            program__step_seconds=[0.1] * program["measured_steps"],
            program__warmup_seconds=[0.2] * program["warmup_steps"], program__warmup_phase_seconds={},
        )  # fmt: skip
    found = estimates.expected_pace(tmp_path, 6.0, "NVIDIA H200", ["fp32"])
    forward = estimates.steps_flops(entry["specifications"]["timing"]["program"]) / 15
    assert found.overhead_s == {
        "timing": 2.0,
        "capture": 6.0,
        "memory": 4.0,
        "energy": 4.0,
        "counters": 4.0,
    }  # not measured yet: the mean
    assert found.flop_per_s == {"fp32": forward * (15 + 6) / 6.0}
    assert estimates.expected_pace(tmp_path, 6.0, "NVIDIA L4", ["fp32"]).source.startswith(
        "start-ups as long as the smoke capture"
    )


def test_the_windows_of_energy_are_counted_beside_the_start_and_the_steps():
    of_plan = plan(modes=["forward"])["runs"]
    told = of_plan[0]["specifications"]["timing"] | {"windows": 3, "window_s": 5}
    pace = estimates.Pace({"energy": 2.0}, {}, "made up")
    assert estimates.seconds_needed([estimates.Measurement(ENERGY, told)], pace, 140 * GIB) == 2.0 + 5 * 5


def test_counting_kernels_takes_its_time_on_a_gpu_and_none_on_a_processor():
    measurements = estimates.remaining_measurements(plan(modes=["forward"], counted="*")["runs"], NOWHERE)
    assert [stage.name for stage, _ in measurements] == ["timing", "capture", "counters"]
    pace = estimates.Pace({"timing": 2.0, "capture": 6.0, "counters": 5.0}, {}, "made up")
    assert estimates.seconds_needed(measurements, pace, None, on_gpu=True) == 2.0 + 6.0 + 5.0 + 49.0
    assert estimates.seconds_needed(measurements, pace, None, on_gpu=False) == 2.0 + 6.0
    laptop = said("time", lines(LAPTOP, WHOLE_ON_CPU, plan(modes=["forward"], counted="*"))).text
    assert "0 of 3 measurements finished; the others take at least 8 s" in laptop  # two starts as long as the smoke


@pytest.mark.parametrize(("there", "seconds"), [(True, 3.0 + 5.0 + 49.0), (False, 0.1)])
def test_counting_kernels_is_among_the_longest_on_a_gpu_and_the_shortest_on_a_processor(monkeypatch, there, seconds):
    monkeypatch.setattr(estimates, "gpu_is_visible", lambda: there)
    told = plan(modes=["forward"], counted="*")["runs"][0]["specifications"]["counters"]
    assert estimates.usual_seconds(estimates.Measurement(COUNTERS, told)) == pytest.approx(
        seconds, abs=0.1
    )  # and its steps


def test_what_ncu_slows_down_has_no_part_in_the_pace_of_steps(tmp_path):
    entry = plan(modes=["forward"], counted="*")["runs"][0]
    figures = {"timing": (5.0, 2.0), "capture": (9.0, 2.0), "counters": (45.0, 1000.0)}  # all, measured steps
    for stage, (job_s, measured_s) in figures.items():
        told = entry["specifications"][stage]
        write_result(
            tmp_path, entry["run"], stage, specification=told,
            program__spec=told["program"], program__machine__device_name="NVIDIA H200", seconds={"all": job_s},
            program__cost_seconds={"warmup": 0.0, "measured": measured_s}, program__phase_seconds={},
            program__step_seconds=[0.1] * told["program"]["measured_steps"],
            program__warmup_seconds=[0.2] * told["program"]["warmup_steps"], program__warmup_phase_seconds={},
        )  # fmt: skip
    found = estimates.expected_pace(tmp_path, 6.0, "NVIDIA H200", ["fp32"])
    flops = sum(estimates.steps_flops(entry["specifications"][stage]["program"]) for stage in ("timing", "capture"))
    assert found.flop_per_s == {"fp32": flops / 4.0}
    assert found.source == "from 3 earlier measurements on this device"


def test_the_smoke_capture_is_of_a_little_model_and_one_step():
    specifications = [entry["specifications"]["capture"] for entry in plan(models=["10B", "small"])["runs"]]
    program = smoke_specification(specifications)["program"]
    assert (program["dimensions"]["batch_size"], program["dimensions"]["context_length"]) == (1, 16)
    assert program["measured_steps"] == 1
    assert (program["sizes"]["num_layers"], program["vocab_size"]) == (1, 128)


def test_the_smoke_capture_of_somebody_elses_model_has_the_sizes_of_the_smallest_run():
    specifications = [
        entry["specifications"]["capture"] for entry in plan(["10B", "small"], constructor="theirs:Model")["runs"]
    ]
    program = smoke_specification(specifications)["program"]
    assert (program["sizes"]["d_model"], program["sizes"]["num_layers"]) == (768, 12)
    assert program["dimensions"]["context_length"] == 16


def test_runs_of_another_precision_have_a_pace_of_their_own(tmp_path):
    pace = estimates.expected_pace(NOWHERE, 2.0, "NVIDIA H200", ["fp32", "bf16"])
    assert pace.flop_per_s == {"fp32": 0.6 * 67e12, "bf16": 0.6 * 989.4e12}
    program = plan()["runs"][0]["specifications"]["timing"]["program"]
    in_bf16 = program | {"dimensions": program["dimensions"] | {"precision": "bf16"}}
    assert pace.steps_seconds(program) / pace.steps_seconds(in_bf16) == 989.4 / 67


def test_what_is_recomputed_counts_as_work():
    program = plan(models=["small"], modes=["train_step"])["runs"][0]["specifications"]["timing"]["program"]
    forward = estimates.steps_flops(program) / 3
    nested = program | {"dimensions": program["dimensions"] | {"checkpoint": "8-2"}}
    again = sum(recomputed_flops(shape_of(program), "8-2").values())
    steps = program["warmup_steps"] + program["measured_steps"]
    assert estimates.steps_flops(nested) == pytest.approx(3 * forward + steps * again)
