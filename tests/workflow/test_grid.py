"""From config.yaml to runs, and to what their processes are told."""

from copy import deepcopy
from pathlib import Path

import msgspec
import pytest
import yaml
from snakemake.utils import update_config

from cs336_model.spec import read_spec
from workflow.grid import ConfigError, choose_shown, describe, expand_grid, questions, read_config

SHIPPED = yaml.safe_load((Path(__file__).parents[2] / "config.yaml").read_text())
PRODUCT = {"models": ["tiny"], "context_lengths": [64], "modes": ["train_step"]}
ALONE = {"program": "attention", "head_dims": [16], "context_lengths": [64, 32]}


def config_of(*products: dict, **changes) -> dict:
    """The shipped configuration with a grid of these products, and with these changes, as Snakemake makes them."""
    values = deepcopy(SHIPPED) | {"grid": "one", "grids": {"one": list(products or [PRODUCT])}}
    update_config(values, changes)
    return values


def runs_of(*products: dict, **changes) -> dict:
    return expand_grid(read_config(config_of(*products, **changes)))


def told(*products: dict, stage: str = "timing", **changes) -> dict:
    """What the process of the first run is told at a stage."""
    config = read_config(config_of(*products, **changes))
    return msgspec.to_builtins(describe(config, next(iter(expand_grid(config).values())), stage))


@pytest.mark.parametrize("grid", SHIPPED["grids"])
def test_every_shipped_grid_has_runs_that_a_program_accepts(grid):
    config = read_config(deepcopy(SHIPPED) | {"grid": grid})
    runs = expand_grid(config)
    assert runs
    for name, run in runs.items():
        for stage in run.stages:
            spec = read_spec(msgspec.json.encode(describe(config, run, stage)))
            assert (spec.run, spec.stage) == (name, stage)


WRONG = [  # a change of the configuration, and words of the message
    ({"timing": {"warmup_stepz": 1}}, "timing: Object contains unknown field warmup_stepz; workflow/grid.py and "),
    ({"timing": {"warmup_steps": -1}}, "timing.warmup_steps: Expected int >= 0"),
    ({"grid": "onn"}, "grid: 'onn' is not one of one"),
    ({"models": {"../x": {}}}, "models"),
    ({"models": {"own": {"d_model": 96, "d_ff": 8, "num_layers": 1, "num_heads": 32}}}, "is not an even multiple"),
    ({"kernel_classes": [{"class": "gemm", "pattern": "("}]}, "kernel_classes"),
    ({"diagnosis_rules": [{"code": "x"}]}, "diagnosis_rules"),
    ({"program": {"constructor": "m:M", "arguments": {"a": "$wide"}}}, "program.arguments.a of models.tiny: 'wide'"),
    ({"grids": {"one": [PRODUCT | {"precison": ["bf16"]}]}}, "grids.one[0]: Object contains unknown field precison"),
    ({"grids": {"one": [PRODUCT | {"modes": ["train"]}]}}, "grids.one[0].modes[0]: Invalid enum value 'train'"),
    ({"grids": {"one": [PRODUCT | {"models": ["tinny"]}]}}, "grids.one[0].models: 'tinny' is not one of tiny, mini"),
    ({"grids": {"one": [PRODUCT | {"checkpoints": ["2-"]}]}}, "grids.one[0].checkpoints[0]"),
    ({"grids": {"two": [{"mods": []}]}}, "grids.two[0]"),  # it is not chosen
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_what_is_wrong_is_one_line_that_names_its_key(change, message):
    with pytest.raises(ConfigError) as caught:
        runs_of(**change)
    assert message in str(caught.value) and "\n" not in str(caught.value)


IMPOSSIBLE = [  # others are those of tests/cs336_model/test_spec.py
    ([PRODUCT | {"gpus": [2]}], "tiny_ctx64_train_step_gpus2 cannot be measured: gpus 2 with parallel none"),
    ([PRODUCT | {"gpus": [2], "parallels": ["ddp"], "stages": ["energy"]}], "stage energy needs one GPU"),
    ([ALONE | {"attentions": ["flash"], "compiles": [True]}], "a fused kernel is not compiled"),
    ([PRODUCT, ALONE], "give each its own"),
]


@pytest.mark.parametrize(("products", "message"), IMPOSSIBLE, ids=[message for _, message in IMPOSSIBLE])
def test_what_no_machine_can_measure_is_refused_while_planning(products, message):
    with pytest.raises(ConfigError, match=rf"^grids\.one: .*{message}"):
        runs_of(*products)


def test_a_name_leaves_out_what_is_at_its_default_also_if_the_configuration_has_another():
    assert list(runs_of(PRODUCT, precision="bf16", batch_size=2)) == ["tiny_ctx64_train_step_bf16_bs2"]
    assert list(runs_of(PRODUCT | {"precisions": ["fp32"], "batch_sizes": [4]}, precision="bf16")) == [
        "tiny_ctx64_train_step"
    ]


def test_a_run_of_two_products_is_one_run_with_the_stages_of_both():
    runs = runs_of(PRODUCT | {"stages": ["energy"]}, PRODUCT | {"stages": ["memory"]}, counters={"runs": ""})
    assert [run.stages for run in runs.values()] == [("timing", "capture", "memory", "energy")]
    alone = runs_of(ALONE, ALONE | {"context_lengths": [64, 128]})
    assert [run.context_lengths for run in alone.values()] == [(32, 64, 128)]


def test_the_shown_run_has_several_gpus_but_counters_are_of_one():
    product = PRODUCT | {"context_lengths": [64, 512], "modes": ["forward", "train_step"]}
    runs = runs_of(product, PRODUCT | {"gpus": [2], "parallels": ["ddp", "naive"]})
    assert choose_shown(runs) == "tiny_ctx64_train_step_gpus2_ddp"
    assert [name for name, run in runs.items() if "counters" in run.stages] == ["tiny_ctx512_train_step"]
    assert choose_shown(runs_of(ALONE)) is None


def test_a_process_is_told_the_values_of_its_run_and_stage(monkeypatch):
    monkeypatch.setenv("MINE", "7")
    spec = told(PRODUCT | {"checkpoints": [2]}, environment=["OTHER", "MINE"], timing={"measured_steps": 3})
    assert (spec["checkpoint"], spec["measured_steps"], spec["warmup_steps"]) == ("2", 3, 5)
    assert spec["environment"] == {"MINE": "7", "OTHER": None}
    assert spec["sizes"] == {"d_model": 128, "d_ff": 512, "num_layers": 2, "num_heads": 4, "rope_theta": 10000.0}
    assert spec["vocab_size"] == 10_000
    assert told(stage="capture", capture={"nsys_options": ["--trace=cuda"]})["nsys_options"] == ["--trace=cuda"]


def test_the_model_of_the_course_is_one_word():
    spec = told(program="cs336_basics")
    assert spec["constructor"] == "cs336_basics.model:BasicsTransformerLM" and spec["annotate"] == "modules"
    module, _, name = next(iter(spec["replace"].values())).partition(":")
    assert f"def {name}(" in (Path(__file__).parents[2] / f"{module.replace('.', '/')}.py").read_text()


def test_a_question_is_only_answered_if_the_grid_asks_it():
    """The checklist has a grid that asks all."""
    basic = ["a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention"]
    assert questions(runs_of(counters={"runs": ""})) == [*basic, "time_lost"]
    assert questions(runs_of(ALONE)) == ["attention_sweep"]
