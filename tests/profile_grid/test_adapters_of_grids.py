"""A student's code in config.yaml: which runs it is part of, and what is refused while planning."""

import json
from pathlib import Path

import pytest
import yaml

from cs336_model.program.adapters.names import ADAPTERS
from profile_grid.study.runs import checked_config, grid_runs, grid_settings_json, specification_json
from profile_grid.study.schema import ConfigError
from profile_grid.study.stages import STAGE_BY_NAME
from profile_grid.study.workloads import program_of

ROOT = Path(__file__).parents[2]
ALONE = {"program": "attention", "head_dims": [16], "context_lengths": [128], "attentions": ["flash", "own-triton"]}
STEPS = {"models": ["tiny"], "context_lengths": [64], "modes": ["forward"], "attentions": ["eager", "own-pytorch"]}
TRITON = "get_flashattention_autograd_function_triton"


def config(product: dict, **program) -> dict:
    values = yaml.safe_load((ROOT / "config.yaml").read_text())
    return values | {"grid": "g", "grids": {"g": [product]}, "program": values["program"] | program}


def programs(values: dict, stage: str) -> dict[str, dict]:
    """The specification of the measured program of each run."""
    runs = grid_runs(checked_config(values))
    return {
        name: json.loads(specification_json(values, run, STAGE_BY_NAME[stage]))["program"] for name, run in runs.items()
    }


def test_a_module_gives_every_name_of_the_handout_and_a_mapping_only_its_own():
    assert program_of(config(ALONE, adapters="tests.adapters"))["adapters"] == {
        name: f"tests.adapters:{name}" for name in ADAPTERS
    }
    assert program_of(config(ALONE, adapters={TRITON: "mine:flash"}))["adapters"] == {TRITON: "mine:flash"}
    assert program_of(config(ALONE))["adapters"] == {}


@pytest.mark.parametrize(
    ("product", "stage", "value"), [(ALONE, "operator", "own-triton"), (STEPS, "timing", "own-pytorch")]
)
def test_only_a_run_that_measures_a_students_code_has_it_in_its_specification(product, stage, value):
    given = programs(config(product, adapters="mine"), stage)
    of_value = {name: program["adapters"] for name, program in given.items()}
    mine = [name for name in of_value if value in name]
    assert len(mine) == 1 and len(of_value) == 2
    (adapter,) = (name for name in ADAPTERS if name.endswith(value.partition("-")[2]))
    assert of_value.pop(mine[0]) == {adapter: f"mine:{adapter}"}
    assert list(of_value.values()) == [{}]
    assert "mine" in grid_settings_json(config(product, adapters="mine"))


def test_other_adapters_leave_the_specifications_of_other_runs_as_they_are():
    before, after = (programs(config(ALONE, adapters=module), "operator") for module in ("mine", "others"))
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["attention_d16_bs8_own-triton-attention"]


def test_a_value_whose_adapter_is_not_given_is_refused_with_the_key_that_is_missing():
    with pytest.raises(ConfigError) as error:
        grid_runs(checked_config(config(ALONE, adapters={ADAPTERS[0]: "mine:flash"})))
    assert str(error.value) == (
        "grids.g: attention_d16_bs8_own-triton-attention cannot be measured: attention own-triton needs"
        f' program.adapters.{TRITON}: name the module that has it (program: {{adapters: "tests.adapters"}}), or the'
        ' object itself as "module:name"'
    )


@pytest.mark.parametrize(
    ("adapters", "says"),
    [
        ("tests/adapters.py", "program.adapters: 'tests/adapters.py' is not allowed here"),
        ({"get_everything": "a:b"}, "'get_everything' is not one of"),
        ({TRITON: "no_colon"}, f"program.adapters.{TRITON}: 'no_colon' is not allowed here"),
    ],
)
def test_adapters_that_cannot_be_are_refused_in_one_line(adapters, says):
    with pytest.raises(ConfigError) as error:
        checked_config(config(ALONE, adapters=adapters))
    assert says in str(error.value) and "\n" not in str(error.value)
