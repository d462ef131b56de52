"""(m): what a token takes, by the windows of made-up runs whose power is known."""

from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.documents.documents import document_names, documents
from profile_grid.stages.energy.tables import EnergyFacts, energy_of_run, study_tables
from profile_grid.typed_json import parse_as
from tests.profile_grid.made_up import GEMM, Kernel, Made, merged
from tests.profile_grid.made_up_answers import own_tables
from tests.profile_grid.made_up_energy import energy_result, measured_run
from tests.profile_grid.test_answers import PROVENANCE, line_of

FORWARD_FLOPS = 2_000_000_000_000


def counted(run: Made, watts: float = 500.0, step_s: float = 0.02, idle_w: float = 125.0) -> tuple:
    """A run, and its energy result: three windows of 5 s, at this power, 1 % less and 1 % more."""
    return run, energy_result(run.leading, watts, step_s, idle_w, FORWARD_FLOPS)


def tables_of(*runs: tuple, findings: dict | None = None) -> dict[str, pd.DataFrame]:
    """The merged tables of pairs (run, its energy result). Where the result is None, the energy could not be counted.
    `findings`: those of the diagnosis, by name of the run."""
    tables = merged([replace(run, findings=(findings or {}).get(run.name, ())) for run, _ in runs])
    status = ["complete" if result else "unsupported" for _, result in runs]
    reason = [None if result else "energy: no counter" for _, result in runs]
    tables["runs"] = tables["runs"].assign(energy_status=status, reason=reason)
    return tables | study_tables([measured_run(run.leading, result) for run, result in runs if result])


def use_of(*runs: tuple, **options) -> pd.DataFrame:
    return own_tables("m_energy", tables_of(*runs, **options))["energy_use"].set_index("run")


def answered(*runs: tuple, **options) -> str:
    tables = tables_of(*runs, **options)
    return documents(own_tables("m_energy", tables), tables["runs"], PROVENANCE, ["m_energy"])["m_energy"]


def test_the_question_is_asked_where_a_run_was_asked_for_its_energy_and_nowhere_else():
    assert "m_energy" not in document_names(merged([Made()])["runs"])
    assert "m_energy" in document_names(tables_of(counted(Made()))["runs"])


def test_a_step_takes_the_energy_of_a_window_over_its_steps_and_a_token_its_part_of_that():
    result = energy_result(Made().leading, 500.0, 0.02, 125.0, FORWARD_FLOPS)
    row = energy_of_run(result.program, parse_as(EnergyFacts, result.facts))
    assert row["joules_per_step"] == pytest.approx(500 * 0.02)
    assert row["joules_per_step_std"] == pytest.approx(5 * 0.02)  # the windows draw 495, 500 and 505 W
    assert row["joules_per_token"] == pytest.approx(500 * 0.02 / (4 * 512))
    assert (row["windows"], row["steps"], row["step_ms"]) == (3, 750, pytest.approx(20))
    assert (row["idle_power_w"], row["tick_share"]) == (pytest.approx(125), pytest.approx(0.1 / 5))
    assert row["tflops_per_watt"] == pytest.approx(2e12 / 1e12 / 10, rel=1e-3)


@pytest.mark.parametrize(("mode", "forwards"), [("forward", 1), ("forward_backward", 3), ("train_step", 3)])
def test_the_model_flops_of_a_step_are_those_of_its_matrix_products_and_nothing_computed_again(mode, forwards):
    result = energy_result(Made(mode=mode, checkpoint="1").leading, 500.0, 0.02, 125.0, FORWARD_FLOPS)
    assert energy_of_run(result.program, parse_as(EnergyFacts, result.facts))["model_flops"] == forwards * FORWARD_FLOPS


def test_every_window_is_kept_with_the_state_of_the_gpu_at_its_ends():
    windows = tables_of(counted(Made()))["energy_windows"]
    assert windows["kind"].tolist() == ["idle", "steps", "steps", "steps", "idle"]
    assert windows["power_w"].tolist() == pytest.approx([125, 495, 500, 505, 125])
    assert windows[["begin_temperature_c", "end_sm_clock_mhz", "throttled"]].iloc[0].tolist() == [40, 1980, ""]


def test_what_idle_power_takes_while_the_gpu_waits_is_its_part_of_time_and_of_power():
    busy = Made(kernels=(*launches(5000.0),))
    use = use_of(counted(busy)).iloc[0]
    assert (use["busy_ms"], use["waiting_share"]) == (pytest.approx(5), pytest.approx(0.75))
    assert use["waiting_energy_share"] == pytest.approx(0.75 * 125 / 500)
    assert use_of(counted(Made(kernels=(*launches(30_000.0),)))).iloc[0]["waiting_share"] == 0


def launches(busy_us: float) -> list:
    return [Kernel("forward", "block > feed-forward", GEMM, "gemm", 10, busy_us)]


FINDING = ("launch_bound", False, 2.5, 20.0, "likely", "the GPU waits", "compile", "{}", "{}")


def test_launch_bound_runs_are_those_that_the_diagnosis_finds_to_be_so():
    small, large = Made(kernels=(*launches(5000.0),)), Made(model="large", kernels=(*launches(19_000.0),))
    abstained = ("launch_bound", True, None, None, "likely", "cannot tell", "", "{}", "{}")
    findings = {small.name: (FINDING,), large.name: (abstained,)}
    assert use_of(counted(small), counted(large), findings=findings)["launch_bound"].tolist() == [True, False]
    text = answered(counted(small), counted(large), findings=findings)
    assert (
        "Without a profiler, 1 of 2 runs is launch-bound: the GPU idles 75.0 % of a step. At idle power,"
        " this takes up to 18.8 % of the step's energy" in text
    )
    alone = answered(counted(large), findings=findings)
    text = "Without a profiler, no run is launch-bound; power of the idle GPU takes 1.3 % of a step's energy."
    assert text in alone


def test_the_sentences_tell_the_extremes_the_precisions_and_the_contexts_of_these_runs():
    plain, half = counted(Made()), counted(Made(precision="bf16"), watts=400.0, step_s=0.01)
    long = counted(Made(context_length=1024), step_s=0.05)
    text = answered(plain, half, long)
    assert (
        "In bf16, a token takes 1.95 mJ in the forward pass of small at context 512, 40.0 % of the 4.88 mJ in fp32."
        in text
    )
    assert "A token takes 1.95 mJ to 6.10 mJ in the forward pass; in bf16, 40.0 % of that in fp32." in text
    longer = "At a longer context, a token takes 125.0 % of its energy at the shortest"
    assert f"{longer} (1024 instead of 512; 1 pair of runs)." in text
    assert "The GPU draws 400 W to 500 W during steps, at 0.08" in text
    assert " to 0.500 TFLOP/s per watt, and 125 W when idle." in text
    assert "is updated every 100 ms, so the energy of a window is accurate to 2.0 %; the standard deviation" in text
    assert "the standard deviation between windows is 1.0 %." in text


def test_a_run_that_the_diagnosis_calls_launch_bound_under_the_profiler_is_none_where_the_gpu_hardly_waits_without():
    busy = Made(kernels=(*launches(18_000.0),))
    use = use_of(counted(busy), findings={busy.name: (FINDING,)})
    assert use["waiting_share"].iloc[0] == pytest.approx(0.1) and use["launch_bound"].tolist() == [False]


def test_the_table_has_a_line_per_run_with_its_spread():
    text = answered(counted(Made()), counted(Made(precision="bf16"), watts=400.0, step_s=0.01))
    cells = [cell.strip() for cell in line_of(text, "small", "512", "forward pass", "fp32").split("|")]
    assert cells[5:9] == ["10.00 ± 0.10", "4.88 ± 0.05", "500 ± 5", "125"]


def test_a_run_whose_energy_nothing_counts_is_counted_and_its_reason_is_told_once():
    text = answered(counted(Made()), (Made(model="large"), None))
    assert text.count("energy: no counter") == 1
    nothing = answered((Made(), None), (Made(model="large"), None))
    assert "Not answered: the energy of no run was counted; that of 2 was requested." in nothing
