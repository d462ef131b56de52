"""config.yaml -> runs."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml

from cs336_model.arithmetic.flops import shape_of
from profile_grid.study.runs import checked_config, grid_plan, grid_runs, grid_settings_json, specification_json
from profile_grid.study.schema import ConfigError
from profile_grid.study.stages import CAPTURE, TIMING

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config():
    return yaml.safe_load((ROOT / "config.yaml").read_text())


@pytest.mark.parametrize("grid", yaml.safe_load((ROOT / "config.yaml").read_text())["grids"])
def test_every_grid_as_shipped_can_be_planned(config, grid):
    config["grid"] = grid
    assert grid_runs(checked_config(config))


def test_a_run_is_named_after_its_values_that_are_no_defaults(config):
    product = {"models": ["small"], "context_lengths": [512], "modes": ["train_step"]}
    config |= {"grid": "g", "grids": {"g": [
        product | {"precisions": ["bf16-weights"], "attentions": ["flash"], "checkpoints": [0, 2, "8-2"]},
        product | {"compiles": [False, True, "attention"]},  # as YAML reads a bare off and on
    ]}}  # fmt: skip
    runs = grid_runs(checked_config(config))
    assert list(runs) == [
        "small_ctx512_train_step_bf16-weights_flash-attention",
        "small_ctx512_train_step_bf16-weights_flash-attention_checkpoint2",
        "small_ctx512_train_step_bf16-weights_flash-attention_checkpoint8-2",
        "small_ctx512_train_step",
        "small_ctx512_train_step_compile-on",
        "small_ctx512_train_step_compile-attention",
    ]
    assert [run["compile"] for run in runs.values()] == ["off", "off", "off", "off", "on", "attention"]


def test_a_combination_that_no_machine_can_run_is_refused_before_anything_is_measured(config):
    product = {"models": ["small"], "context_lengths": [512], "modes": ["train_step"]}
    config |= {"grid": "g", "grids": {"g": [product | {"compiles": ["on"], "checkpoints": [1]}]}}
    with pytest.raises(
        ConfigError, match="small_ctx512_train_step_compile-on_checkpoint1 cannot be measured: compile on"
    ):
        grid_runs(checked_config(config))
    config["grids"] = {"g": [product | {"attentions": ["flash"]}]}
    config["program"]["constructor"] = "their_model:LM"
    with pytest.raises(
        ConfigError, match="attention flash with the model their_model:LM: this changes a part of the model"
    ):
        grid_runs(checked_config(config))


@pytest.mark.parametrize(
    ("lists", "reason"),
    [
        (
            {"gpus": [2]},
            "gpus 2 with parallel none: gradients are reduced on several GPUs, and only there",
        ),
        ({"parallels": ["ddp"]}, "gpus 1 with parallel ddp: gradients are reduced on several GPUs"),
        (
            {"gpus": [2], "parallels": ["naive"], "modes": ["forward"]},
            "with mode forward: it has no gradients to reduce",
        ),
        ({"gpus": [3], "parallels": ["naive"]}, "gpus 3 with parallel naive with batch_size 4: all GPUs share a batch"),
        ({"gpus": [2], "parallels": ["ddp"], "compiles": ["on"]}, "a compiled graph is split at the buckets"),
        ({"gpus": [2], "parallels": ["ddp"], "stages": ["energy"]}, "stage energy needs one GPU"),
        ({"modes": ["forward"], "optimizers": ["fused"]}, "optimizer fused with mode forward: only train_step has"),
    ],
)
def test_what_several_gpus_cannot_do_is_refused_before_anything_is_measured(config, lists, reason):
    product = {"models": ["small"], "context_lengths": [512], "modes": ["train_step"]}
    config |= {"grid": "g", "grids": {"g": [product | lists]}}
    with pytest.raises(ConfigError, match=re.escape(reason)):
        grid_runs(checked_config(config))


def test_the_configuration_as_shipped_is_valid_and_holds_the_sixty_runs_of_2025(config):
    runs = grid_runs(checked_config(config))
    assert len(runs) == 5 * 4 * 3
    assert {run["model"] for run in runs.values()} == {"small", "medium", "large", "xl", "2.7B"}
    assert (config["batch_size"], config["vocab_size"], config["precision"]) == (4, 10000, "fp32")


@pytest.mark.parametrize("grid", ["cs336-2025", "cs336-2026", "cpu"])
def test_every_grid_as_shipped_is_one_word_away(config, grid):
    assert grid_runs(checked_config(config | {"grid": grid}))


def test_a_run_declared_by_two_products_is_one_run(config):
    product = {"models": ["small"], "context_lengths": [128], "modes": ["forward"]}
    config["grids"]["twice"] = [product, product]
    assert list(grid_runs(config | {"grid": "twice"})) == ["small_ctx128_forward"]


def change(config, path, value):
    *parents, last = path
    for key in parents:
        config = config[key]
    config[last] = value


def test_a_model_may_have_its_own_vocabulary_which_is_no_size_of_its_layers(config):
    config["models"]["small"]["vocab_size"] = 151936
    config["grids"]["both"] = [{"models": ["small", "medium"], "context_lengths": [128], "modes": ["forward"]}]
    runs = grid_runs(checked_config(config | {"grid": "both"}))
    programs = {name: json.loads(specification_json(config, run, TIMING))["program"] for name, run in runs.items()}
    assert [program["vocab_size"] for program in programs.values()] == [151936, 10000]
    assert "vocab_size" not in programs["small_ctx128_forward"]["sizes"]
    shape = shape_of(programs["small_ctx128_forward"])
    assert shape.vocab_size == 151936


FIRST_PRODUCT = ("grids", "cs336-2025", 0)
MODEL = {"d_model": 64, "d_ff": 256, "num_layers": 2, "num_heads": 2}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("gird",), "cpu", "unknown key 'gird'"),
        (("models", "small", "d_modle"), 768, "unknown key 'd_modle'"),
        (("models", "small", "d_model"), 100, "d_model 100 is not divisible by num_heads 12"),
        (("models", "small", "num_heads"), 256, "needs an even number of dimensions"),
        (("models", "../outside"), MODEL, "'../outside' is not allowed here"),
        (("models", "a/b"), MODEL, "'a/b' is not allowed here"),
        (("models", ".hidden"), MODEL, "'.hidden' is not allowed here"),
        (("models", 'a"; rm -rf x'), MODEL, "is not allowed here"),
        (("program", "constructor"), "../evil:run", "is not allowed here"),
        (("program", "constructor"), "os.system", "is not allowed here"),
        (("program", "sources"), ["../../etc/passwd"], "is not allowed here"),
        (("program", "sources"), ["/etc/passwd"], "is not allowed here"),
        (("capture", "nsys_options"), ["--output=/tmp/x"], "is not allowed here"),
        (("capture", "nsys_options"), ["-o"], "is not allowed here"),
        (("capture", "nsys_options"), ["--cuda-graph-trace=node; rm x"], "is not allowed here"),
        (("environment",), ["A=B"], "is not allowed here"),
        ((*FIRST_PRODUCT, "models"), ["smal"], "model 'smal' is not declared under models"),
        ((*FIRST_PRODUCT, "modes"), ["backward"], "'backward' is not one of"),
        ((*FIRST_PRODUCT, "context_lengths"), [0], "0 is less than the minimum"),
        (("grid",), "cs336-2027", "'cs336-2027' is not one of the grids: "),
        (("precision",), "fp8", "'fp8' is not one of"),
        (("timing", "measured_steps"), 0, "0 is less than the minimum"),
        (("formats",), ["latex"], "formats"),
    ],
)
def test_a_configuration_that_cannot_run_gets_one_clear_line(config, path, value, said):
    change(config, path, value)
    with pytest.raises(ConfigError) as raised:
        grid_runs(checked_config(config))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_specification_is_the_same_text_whatever_the_order_of_keys(config):
    shuffled = json.loads(json.dumps(config, sort_keys=True))
    run = next(iter(grid_runs(config).values()))
    assert specification_json(config, run, TIMING) == specification_json(shuffled, run, TIMING)
    assert specification_json(config, run, CAPTURE) == specification_json(shuffled, run, CAPTURE)


def test_a_capture_setting_changes_captures_and_no_timing(config):
    changed = copy.deepcopy(config)
    changed["capture"]["measured_steps"] += 1
    run = next(iter(grid_runs(config).values()))
    assert specification_json(config, run, TIMING) == specification_json(changed, run, TIMING)
    assert specification_json(config, run, CAPTURE) != specification_json(changed, run, CAPTURE)


def test_one_models_shape_changes_only_the_specifications_of_its_runs(config):
    changed = copy.deepcopy(config)
    changed["models"]["small"]["d_ff"] += 64
    differ = {
        run["model"]
        for run in grid_runs(config).values()
        if specification_json(config, run, TIMING) != specification_json(changed, run, TIMING)
    }
    assert differ == {"small"}


def test_what_the_grid_does_not_use_is_not_part_of_its_plan(config):
    changed = copy.deepcopy(config)
    changed["models"]["tiny"]["d_ff"] += 64
    changed["time_limit_s"] += 1
    changed["formats"] = ["markdown", "latex"]
    assert grid_settings_json(config) == grid_settings_json(changed)


@pytest.mark.parametrize("grid", ["cs336-2025", "several"])
def test_the_plan_made_from_the_used_part_is_the_plan_of_the_whole(config, grid):
    several = {"models": ["tiny"], "context_lengths": [64], "modes": ["train_step"], "gpus": [2], "parallels": ["ddp"]}
    config |= {"grid": grid, "grids": config["grids"] | {"several": [several]}}  # without a run on one GPU
    assert grid_plan(json.loads(grid_settings_json(config))) == grid_plan(config)
