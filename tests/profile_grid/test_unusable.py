"""Values of config.yaml that no schema refuses, refused before anything is planned."""

from pathlib import Path

import pytest
import yaml

from profile_grid.study.runs import ConfigError, checked_config
from profile_grid.study.schema import source_errors

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config():
    return yaml.safe_load((ROOT / "config.yaml").read_text())


@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf"])
def test_a_time_limit_that_is_no_finite_number_is_refused_by_its_name(config, value):
    with pytest.raises(ConfigError, match=r"^time_limit_s: (nan|inf|-inf) "):
        checked_config(config | yaml.safe_load(f"time_limit_s: {value}"))


def test_a_number_that_is_not_finite_is_found_at_any_depth(config):
    config["models"]["small"]["rope_theta"] = float("nan")
    with pytest.raises(ConfigError, match=r"^models.small.rope_theta: nan is not a finite number"):
        checked_config(config)


@pytest.mark.parametrize("pattern", ["(", "*gemm", "[a-", "(?=gemm)", r"(a)\1"])
def test_a_class_rule_whose_pattern_is_no_regular_expression_is_refused_before_anything_is_measured(config, pattern):
    rules = [{"class": "gemm", "pattern": "my_kernel.*"}, {"class": "gemm", "pattern": pattern}]
    with pytest.raises(ConfigError, match=r"^kernel_classes, rule 2: the pattern .* cannot be used"):
        checked_config(config | {"kernel_classes": rules})


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"kernel": "("}, r"the pattern '\(' cannot be used"),
        ({"kernel": "norm", "share": 2}, "a share is between 0 and 1"),
        ({"kernel": "norm", "code": "launch_bound"}, "two rules 'launch_bound'"),
        ({}, "it names no kernel, class, range or call"),
    ],
)
def test_a_rule_of_the_diagnosis_that_cannot_be_used_is_refused_before_anything_is_measured(config, rule, why):
    rules = [{"code": "slow_norm", "share": 0.05, "advice": "-"} | rule]
    with pytest.raises(ConfigError, match=rf"^diagnosis_rules.*{why}"):
        checked_config(config | {"diagnosis_rules": rules})


def test_a_source_that_is_a_folder_or_not_there_is_refused_and_a_file_is_not(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "tokens.bin").touch()
    assert list(source_errors(tmp_path, ["data/tokens.bin", "data", "dada"])) == [
        "program.sources.1: 'data' is a folder; name a file of the project",
        "program.sources.2: 'dada' does not exist; name a file of the project",
    ]
