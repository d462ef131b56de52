"""Names and keys of config.yaml that a schema alone lets through are refused by key."""

import re
from pathlib import Path

import pytest
import yaml

from profile_grid.study import removed
from profile_grid.study.runs import checked_config
from profile_grid.study.schema import ConfigError, check_keys

CONFIG = Path(__file__).parents[2] / "config.yaml"


@pytest.fixture
def config():
    return yaml.safe_load(CONFIG.read_text())


@pytest.mark.parametrize("name", ["a\n", "../up", "<b>x</b>", "$(x)", "two\nlines", "", "a b"])
def test_a_grid_or_a_model_of_a_name_that_is_not_one_of_a_file_is_refused(config, name):
    with pytest.raises(ConfigError, match="grid"):
        checked_config(config | {"grid": name, "grids": config["grids"] | {name: config["grids"]["cpu"]}})
    with pytest.raises(ConfigError, match="models"):
        checked_config(config | {"models": config["models"] | {name: config["models"]["small"]}})


@pytest.mark.parametrize("seconds", [1e-7, 0, -1, 0.5])
def test_a_time_limit_below_a_second_is_refused(config, seconds):
    with pytest.raises(ConfigError, match="time_limit_s"):
        checked_config(config | {"time_limit_s": seconds})


def test_a_constructor_with_a_final_newline_is_refused(config):
    with pytest.raises(ConfigError, match="program"):
        checked_config(config | {"program": config["program"] | {"constructor": "a.b:c\n"}})


def test_a_key_that_a_file_sets_twice_is_refused_with_both_lines(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("models:\n  tiny: {d_model: 1}\n  tiny: {d_model: 2}\n")
    with pytest.raises(ConfigError, match=r"config.yaml: lines 2 and 3 both set 'tiny'"):
        check_keys(path)


@pytest.mark.parametrize("text", ["a: {b: 1}\nc: {b: 1}\n", "- a: 1\n- a: 2\n", "", "a: [\n"])
def test_other_files_are_left_to_their_reader(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    check_keys(path)


@pytest.mark.parametrize("path", removed.KEYS)
def test_a_key_that_was_removed_is_refused_with_what_serves_instead(config, path):
    *above, key = path.split(".")
    holder = config
    for name in above:
        holder = holder[name]
    holder[key] = "x"
    with pytest.raises(ConfigError, match=re.escape(f"{path} was removed; {removed.KEYS[path]}")):
        checked_config(config)


@pytest.mark.parametrize(("key", "pattern"), removed.VALUES)
def test_a_value_that_was_removed_is_refused_with_what_serves_instead(config, key, pattern):
    value = pattern.replace("*", "1")
    product = {"models": ["small"], "context_lengths": [512], "modes": ["train_step"], key: [value]}
    with pytest.raises(ConfigError, match=re.escape(f"grids.g.{key}: '{value}' was removed; ")):
        checked_config(config | {"grid": "g", "grids": {"g": [product]}})


@pytest.mark.parametrize("grid", removed.GRIDS)
def test_a_grid_that_was_removed_is_refused_with_what_serves_instead(config, grid):
    with pytest.raises(ConfigError, match=re.escape(f"grid: '{grid}' was removed; ")):
        checked_config(config | {"grid": grid})


@pytest.mark.parametrize("wrong", [{"grids": []}, {"grid": ["cpu"]}, {"grids": {"cpu": {"models": "tiny"}}}])
def test_a_value_of_another_type_is_refused_by_its_key(config, wrong):
    with pytest.raises(ConfigError, match=r"^grids?\b"):
        checked_config(config | wrong)
