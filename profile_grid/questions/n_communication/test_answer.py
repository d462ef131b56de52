"""(n): what communication costs, from ranks with planted numbers."""

from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.documents.documents import document_names, documents
from profile_grid.documents.summaries import Summaries
from profile_grid.study.catalogue import QUESTIONS
from tests.profile_grid.made_up import CPU, GEMM, Kernel, Made, merged
from tests.profile_grid.test_answers import PROVENANCE, line_of

NAME = "n_communication"
TABLES = next(question.tables for question in QUESTIONS if question.name == NAME)
ONE = Made(mode="train_step", batch_size=8, unprofiled_ms=100.0, unprofiled_std_ms=1.0)
HALF = replace(ONE, batch_size=4, unprofiled_ms=55.0)
NAIVE = replace(ONE, gpus=2, parallel="naive", unprofiled_ms=80.0)
DDP = replace(NAIVE, parallel="ddp", unprofiled_ms=62.5)
MS = 1_000_000  # in ns


def with_ranks(tables: dict[str, pd.DataFrame], run: Made, overlapped: int, bytes_named: bool = True) -> None:
    """Adds two steps of 100 ms of two ranks. A step has 60 ms of computation and one all-reduce of 24 MB, of which
    `overlapped` ms are beside the computation; the rest is idle. The all-reduce takes 12 ms on rank 1. On rank 0 it
    takes 20 ms, 8 of which wait for rank 1."""
    rows = {name: [] for name in ("rank_times", "rank_steps", "collectives")}
    for rank in (-1, 0, 1):  # -1: at every step the slowest rank
        for phase, mean in (("step", run.unprofiled_ms), ("step without communication", 60.0)):
            times = {"n": 10, "mean_ms": mean, "std_ms": 0.5, "min_ms": mean, "max_ms": mean}
            times |= {"processes": 1, "process_spread": float("nan")}
            rows["rank_times"].append(run.leading | {"rank": rank, "phase": phase} | times)
    size = 24 * 10**6 if bytes_named else None
    for rank, step in ((0, 0), (0, 1), (1, 0), (1, 1)):
        waiting = 8 - 8 * rank
        communication = 12 + waiting
        keys = run.leading | {"rank": rank, "device": 0, "step": step}
        exposed = communication - overlapped
        parts = {"compute": 60, "exposed_communication": exposed, "exposed_memory": 0, "idle": 40 - exposed}
        times = parts | {"step": 100, "communication": communication, "overlapped": overlapped}
        times |= {"transfer": 12, "waiting": waiting}
        rows["rank_steps"].append(
            keys | {f"{name}_ns": ms * MS for name, ms in times.items()} | {"collectives": 1, "bytes": size}
        )
        collective = {"number": 0, "operation": "all-reduce", "range": "all-reduce", "kernel": "nccl", "bytes": size}
        collective |= {"bucket": 0, "start_ns": 0, "duration_ns": communication * MS, "exposed_ns": exposed * MS}
        collective |= {"transfer_ns": 12 * MS, "waiting_ns": waiting * MS}
        gb_per_s = 2.0 if bytes_named else None
        rows["collectives"].append(keys | collective | {"algorithm_gb_per_s": gb_per_s, "bus_gb_per_s": gb_per_s})
    for name, new_rows in rows.items():
        tables[name] = pd.concat([tables[name], pd.DataFrame(new_rows)[tables[name].columns]], ignore_index=True)


@pytest.fixture
def tables() -> dict[str, pd.DataFrame]:
    made = merged([ONE, HALF, NAIVE, DDP])
    with_ranks(made, NAIVE, overlapped=0)
    with_ranks(made, DDP, overlapped=9)
    return made


def summaries(tables) -> Summaries:
    return Summaries(tables, (*TABLES, "top_kernels"))


def document(tables) -> str:
    return documents(summaries(tables), tables["runs"], PROVENANCE, [NAME])[NAME]


def test_the_question_is_asked_of_a_grid_with_a_run_on_several_gpus(tables):
    assert NAME in document_names(tables["runs"])
    assert NAME not in document_names(merged([ONE])["runs"])


def test_the_cost_is_the_step_less_the_step_without_communication(tables):
    table = summaries(tables)["communication_times"]
    assert table[["parallel", "mean_ms", "without_mean_ms", "cost_ms", "cost_share"]].values.tolist() == [
        ["naive", 80.0, 60.0, 20.0, 0.25],
        ["ddp", 62.5, 60.0, 2.5, 0.04],
    ]


def test_every_rank_keeps_its_own_row_and_its_parts_add_up_to_its_step(tables):
    table = summaries(tables)["communication_steps"]
    parts = ["compute_ms", "exposed_communication_ms", "exposed_memory_ms", "idle_ms"]
    assert table[["parallel", "rank", *parts, "overlap"]].values.tolist() == [
        ["naive", 0, 60.0, 20.0, 0.0, 20.0, 0.0],
        ["naive", 1, 60.0, 12.0, 0.0, 28.0, 0.0],
        ["ddp", 0, 60.0, 11.0, 0.0, 29.0, 9 / 20],
        ["ddp", 1, 60.0, 3.0, 0.0, 37.0, 9 / 12],
    ]
    assert (table[parts].sum(axis=1) == table["step_ms"]).all()


def test_collectives_of_a_size_have_their_bandwidth_by_the_transfer(tables):
    table = summaries(tables)["communication_collectives"]
    figures = ["per_step", "duration_ms", "transfer_ms", "waiting_ms", "algorithm_gb_per_s", "bus_gb_per_s"]
    assert table[["parallel", "bytes", "bucket", *figures]].values.tolist() == [
        ["naive", 24e6, 0.0, 1.0, 16.0, 12.0, 4.0, 2.0, 2.0],
        ["ddp", 24e6, 0.0, 1.0, 16.0, 12.0, 4.0, 2.0, 2.0],
    ]


def test_strong_scaling_has_the_same_batch_and_weak_as_much_for_each_gpu(tables):
    table = summaries(tables)["communication_scaling"]
    figures = table[["kind", "parallel", "base_run", "speed_up", "efficiency"]].values.tolist()
    assert figures == [
        ["strong", "naive", ONE.name, 1.25, 0.625],
        ["strong", "ddp", ONE.name, 1.6, 0.8],
        ["weak", "naive", HALF.name, 1.375, 0.6875],
        ["weak", "ddp", HALF.name, 1.76, 0.88],
    ]
    spread = 0.625 * ((1 / 80) ** 2 + (1 / 100) ** 2) ** 0.5
    assert table["efficiency_std"][0] == pytest.approx(spread)


def test_without_a_run_on_one_gpu_there_is_no_efficiency_and_all_else_stays():
    made = merged([DDP])
    with_ranks(made, DDP, overlapped=9)
    assert summaries(made)["communication_scaling"].empty
    text = document(made)
    assert "of ideal speed" not in text
    assert "exposed communication takes 3.00 to 11.0 ms of a step (3.0 % to 11.0 %, depending on the rank)." in text


def test_the_document_says_what_it_costs_what_shows_what_waits_and_how_fast_it_is(tables):
    text = document(tables)
    assert "Under the profiler, exposed communication takes 3.0 % to 20.0 % of a step (medians: from" in text
    assert "The fastest all-reduce, of 24.0 MB, has a bus bandwidth of 2.00 GB/s" in text
    assert "With strong scaling (one batch for all GPUs), 2 GPUs train small at context 512 at 62.5 % to 80.0 %" in text
    assert "with no clear winner among 2 ways" in text
    lines = text.splitlines()
    after_tables = [lines[number + 1] for number, line in enumerate(lines[:-1]) if line.startswith("|")]
    assert {line[:1] for line in after_tables} == {"|", ""}  # text right below a table would be a row of it
    line = line_of(text, "small", "512", "training step", "8", "2", "ddp", "1")
    cells = [cell.strip() for cell in line.split("|")[8:-1]]
    assert cells == ["60.0", "3.00", "0", "37.0", "100", "12.0", "12.0", "0", "75.0 %"]


def costs(*without_ms: float, step_ms: float = 80.0) -> tuple[pd.DataFrame, str]:
    """The table and the document of naive DDP and DDP; `without_ms`: their times without communication."""
    busy = (Kernel("forward", "block", GEMM, "gemm", 1, 1e3 * step_ms),)
    runs = [replace(NAIVE, parallel=way, unprofiled_ms=step_ms, kernels=busy) for way in ("naive", "ddp")]
    made = merged(runs)
    for run in runs:
        with_ranks(made, run, overlapped=0)
    times = made["rank_times"]
    for run, ms in zip(runs, without_ms, strict=True):
        times.loc[(times["run"] == run.name) & (times["phase"] == "step without communication"), "mean_ms"] = ms
    return summaries(made)["communication_times"], document(made)


def test_the_same_work_has_one_baseline_whose_spread_decides_what_can_be_told():
    table, text = costs(60.0, 61.0)
    assert table["baseline_ms"].unique().tolist() == [60.5] and set(table["baseline_processes"]) == {2}
    assert table["cost_ms"].tolist() == pytest.approx([19.5] * 2) and set(table["verdict"]) == {"slower"}
    assert "communication costs time in both runs: 24.4 % of the step, most in" in text


def test_a_cost_within_the_spread_of_the_same_work_is_not_told():
    table, text = costs(60.0, 90.0)
    assert set(table["verdict"]) == {"unclear"}
    assert "communication costs time in none of 2 runs. In the others, the cost is within the variation" in text


def test_without_bytes_the_document_says_that_speed_cannot_be_told():
    made = merged([DDP])
    with_ranks(made, DDP, overlapped=9, bytes_named=False)
    assert "Bandwidths are not known: the ranges of these collectives have no sizes." in document(made)


def test_on_a_processor_the_document_says_what_the_numbers_are_of():
    run = replace(DDP, machine=CPU)
    made = merged([run])
    with_ranks(made, run, overlapped=9)
    assert "these numbers say nothing of GPUs" in document(made)


def test_a_run_that_ran_out_of_memory_is_a_cell_and_no_figure():
    made = merged([replace(DDP, timing_status="out_of_memory", capture_status="out_of_memory")])
    text = document(made)
    assert "Not answered: no run on several GPUs has figures." in text
    assert line_of(text, "small", "512", "training step", "8", "2", "ddp", "OOM")


def with_losses(tables: dict[str, pd.DataFrame], *losses: tuple[Made, list[float]]) -> None:
    """Adds the losses of these runs."""
    rows = [run.leading | {"number": n, "loss": loss} for run, of_run in losses for n, loss in enumerate(of_run)]
    tables["losses"] = pd.DataFrame(rows)


def test_losses_of_several_gpus_are_held_against_those_of_one_with_the_same_batch(tables):
    other = replace(NAIVE, batch_size=16)
    with_losses(tables, (ONE, [4.0, 2.0]), (NAIVE, [4.0, 2.1]), (DDP, [4.0, 2.00002]), (other, [4.0, 2.0]))
    table = summaries(tables)["communication_losses"]
    naive, ddp, alone = table[["parallel", "losses", "largest_off", "within_precision"]].to_dict("records")
    assert naive == {"parallel": "naive", "losses": 2, "largest_off": pytest.approx(0.05), "within_precision": False}
    assert ddp == {"parallel": "ddp", "losses": 2, "largest_off": pytest.approx(1e-5), "within_precision": True}
    assert alone["losses"] == 0 and pd.isna(alone["within_precision"])
    assert 1e-5 > table["explained"][1] > 5e-6  # the second of two steps may be off by twice as much
    assert table["base_run"].tolist()[:2] == [ONE.name, ONE.name]
    text = document(tables)
    assert "Losses differ from those on one GPU: small at context 512 with batch 8 on 2 GPUs with naive DDP." in text
    assert "| 0.0e+00 | 1.0e-05 | 8.1e-06 | the same |" in " ".join(text.split())


def test_losses_that_agree_until_training_is_unstable_are_no_error(tables):
    with_losses(tables, (ONE, [4.0, 2.0, 3.0]), (NAIVE, [4.0, 2.0, 3.1]), (DDP, [4.0, 2.0, 3.0]))
    table = summaries(tables)["communication_losses"]
    assert table[["agreeing", "within_precision"]].values.tolist() == [[2, False], [3, True]]
    text = document(tables)
    assert (
        "those on one GPU for the first 2 of 3 steps, then differ by at most 3.3 % in 1 of 2 runs whose batch" in text
    )
    assert "| the same for 2, then apart |" in " ".join(text.split())
    assert "differ from those" not in text


def test_losses_that_agree_again_do_not_count(tables):
    with_losses(tables, (ONE, [4.0, 2.0, 3.0]), (NAIVE, [4.0, 2.1, 3.0]))
    assert summaries(tables)["communication_losses"]["agreeing"].tolist() == [1]
    assert "Losses differ from those on one GPU: small" in document(tables)


def test_losses_that_are_the_same_say_how_far_they_are_off(tables):
    with_losses(tables, (ONE, [4.0, 2.0]), (NAIVE, [4.0, 2.0]), (DDP, [4.0, 2.00002]))
    assert "Losses match those on one GPU within the precision; they differ by at most 0.0010 %." in document(tables)
    with_losses(tables, (NAIVE, [4.0, 2.0]))
    assert "no run on one GPU has this batch" in document(tables)


def test_a_first_step_that_rounding_does_not_explain_is_told_in_sentence_and_table(tables):
    assert "Rounding" not in document(tables)
    assert summaries(tables)["communication_accuracy"]["parallel"].tolist() == ["naive", "ddp"]
    wrong = tables["accuracy"]["run"] == NAIVE.name
    tables["accuracy"].loc[wrong, ["gradient_norm_error", "within_precision"]] = [1.0, False]
    text = document(tables)
    assert (
        "The error of the first step is too large for rounding in small at context 512 with batch 8 on 2"
        " GPUs with naive DDP."
    ) in text
    assert "| 1.2e-07 | 1.2e-07 | 1.0e+00 | 8.1e-06 | **no** |" in " ".join(text.split())


def test_runs_that_were_not_held_against_fp64_say_why(tables):
    errors = ["loss_error", "logits_error", "gradient_norm_error", "within_precision"]
    tables["accuracy"] = tables["accuracy"].assign(**dict.fromkeys(errors), reason="it does not fit")
    text = document(tables)
    assert "norm of the gradients |" not in text


FSDP = replace(NAIVE, parallel="fsdp", unprofiled_ms=70.0)


def with_memory(tables: dict[str, pd.DataFrame], run: Made, gigabytes: dict[str, int]) -> None:
    """Adds the memory of two ranks; before the optimizer, the fullest moment has one gigabyte of activations more."""
    rows = []
    for rank in range(run.gpus):
        for moment in ("initialised", "before the optimizer", "after the optimizer"):
            for category, size in ({"activations": 0} | gigabytes).items():
                more = 10**9 if (moment, category) == ("before the optimizer", "activations") else 0
                sizes = {"bytes": size * 10**9, "peak_bytes": size * 10**9 + more}
                rows.append(run.leading | {"rank": rank, "moment": moment, "category": category} | sizes)
    columns = tables["memory_moments"].columns
    tables["memory_moments"] = pd.concat([tables["memory_moments"], pd.DataFrame(rows)[columns]], ignore_index=True)


def with_gathers(tables: dict[str, pd.DataFrame], run: Made, late_ns: dict[tuple[str, int], tuple[int, int]]) -> None:
    """Adds the lateness of blocks, by pass and number of the block, in two steps of rank 0."""
    rows = [
        run.leading | {"rank": 0, "device": 0, "step": step, "pass": name, "layer": layer}
        | {"begin_ns": 0, "end_ns": MS, "gathers": 1, "lateness_ns": step_ns}
        for (name, layer), steps_ns in late_ns.items()
        for step, step_ns in enumerate(steps_ns)
    ]  # fmt: skip
    tables["layer_gathers"] = pd.concat([tables["layer_gathers"], pd.DataFrame(rows)], ignore_index=True)


def test_memory_is_told_by_component_and_the_least_and_the_most_of_a_step_in_a_sentence():
    made = merged([ONE, NAIVE, FSDP])
    for run, share in ((ONE, 1), (NAIVE, 1), (FSDP, 2)):
        with_memory(made, run, {"parameters": 2 // share, "optimizer state": 4 // share})
    table = summaries(made)["communication_memory"]
    chosen = table[(table["moment"] == "before the optimizer") & (table["rank"] == 0)]
    columns = ["parallel", "at", "parameters_bytes", "optimizer_state_bytes", "activations_bytes"]
    assert chosen[[*columns, "all_bytes"]].values.tolist() == [
        ["none", "that moment", 2e9, 4e9, 0, 6e9],
        ["none", "peak before", 2e9, 4e9, 1e9, 7e9],
        ["naive", "that moment", 2e9, 4e9, 0, 6e9],
        ["naive", "peak before", 2e9, 4e9, 1e9, 7e9],
        ["fsdp", "that moment", 1e9, 2e9, 0, 3e9],
        ["fsdp", "peak before", 1e9, 2e9, 1e9, 4e9],
    ]
    text = document(made)
    assert "In small at context 512 with batch 8 on 2 GPUs, the rank with the highest peak before the optimizer" in text
    assert "needs 3.7 GiB with fsdp, and 6.5 GiB with naive DDP." in text
    assert summaries(merged([ONE]))["communication_memory"].empty


def test_blocks_that_wait_for_their_parameters_are_counted_and_each_has_its_line():
    made = merged([ONE, FSDP])
    with_ranks(made, FSDP, overlapped=9)
    late_ns = {("forward", 0): (0, 2 * MS), ("forward", 1): (0, 0), ("backward", 0): (MS, MS)}
    with_gathers(made, FSDP, late_ns)
    table = summaries(made)["communication_gathers"]
    assert table[["pass", "layer", "steps", "late", "mean_ms", "max_ms"]].values.tolist() == [
        ["forward", 0, 2, 1, 1.0, 2.0],
        ["forward", 1, 2, 0, 0.0, 0.0],
        ["backward", 0, 2, 2, 1.0, 1.0],
    ]
    text = document(made)
    assert "waits for the parameters of 1 of 2 blocks in the forward pass, and of 1 of 1 in the backward pass:" in text
    assert line_of(text, "small", "512", "training step", "8", "2", "fsdp", "forward", "0", "1 of 2")
    assert text.count("| forward ") == 1, "the other block was in time"
    again = {("backward", 1): (0, 0), ("backward", 2): (0, 0)}
    with_gathers(made, FSDP, late_ns | again)
    assert "and of 1 of 3 in the backward pass, where recomputed ones count twice:" in document(made)


def test_a_block_for_which_a_run_waits_most_of_the_time_is_named():
    made, equal = merged([ONE, FSDP]), merged([ONE, FSDP])
    with_gathers(made, FSDP, {("forward", 0): (6 * MS, 6 * MS), ("forward", 1): (0, 0), ("backward", 0): (MS, MS)})
    assert "7.00 ms of a captured step, 85.7 % of it for block 0 in the forward pass." in document(made)
    with_gathers(equal, FSDP, {("forward", 0): (MS, MS), ("backward", 0): (MS, MS)})
    assert "2.00 ms of a captured step." in document(equal)


def test_a_run_that_divides_its_parameters_has_no_time_without_communication():
    made = merged([ONE, NAIVE, FSDP])
    with_ranks(made, NAIVE, overlapped=0)
    with_ranks(made, FSDP, overlapped=9)
    table = summaries(made)["communication_times"].set_index("parallel")
    assert table.loc["naive", "cost_ms"] == 20.0 and pd.isna(table.loc["fsdp", "cost_ms"])


def test_the_bytes_of_a_step_are_the_sum_over_its_collectives(tables):
    table = summaries(tables)["communication_volume"]
    assert table[["parallel", "operation", "per_step", "bytes"]].values.tolist() == [
        ["naive", "all-reduce", 1.0, 24e6],
        ["ddp", "all-reduce", 1.0, 24e6],
    ]
