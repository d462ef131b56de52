"""The declared dimensions: names of runs, words, and that the measured program knows them all."""

from cs336_model.program.variants.effects import KNOWN_DIMENSIONS
from cs336_model.ranges import PHASES_OF_MODE
from profile_grid.study.dimensions import (
    BY_KEY,
    DIMENSIONS,
    KEYS,
    MACHINE_KEYS,
    MODES,
    combinations,
    keys_without,
    run_name,
    title_of,
)

DEFAULTS = {"model": "small", "context_length": 512, "mode": "train_step"} | {
    one.key: one.default for one in DIMENSIONS if one.default is not None
}


def test_a_run_at_its_defaults_has_the_short_name_of_model_context_and_mode():
    assert run_name(DEFAULTS) == "small_ctx512_train_step"


def test_the_name_of_a_run_says_what_is_not_at_its_default_in_the_declared_order():
    assert run_name(DEFAULTS | {"batch_size": 8, "precision": "bf16"}) == "small_ctx512_train_step_bf16_bs8"


def test_different_values_have_different_names():
    lists = {one.key: one.values or (one.default or "x", 7) for one in DIMENSIONS}
    names = [run_name(values) for values in combinations(lists)]
    assert len(set(names)) == len(names) > 1


def test_the_last_dimension_changes_fastest():
    lists = {key: [value] for key, value in DEFAULTS.items()} | {"mode": ["forward", "train_step"]}
    lists[KEYS[-1]] = [1, 2]
    found = [(values["mode"], values[KEYS[-1]]) for values in combinations(lists)]
    assert found == [("forward", 1), ("forward", 2), ("train_step", 1), ("train_step", 2)]


def test_a_title_names_the_dimensions_that_it_is_asked_for():
    values = DEFAULTS | {"precision": "bf16"}
    assert title_of(values, ["precision", "context_length"]) == "context 512, precision bf16"
    assert title_of(values, []) == ""
    assert title_of({"compile": "off", "checkpoint": "0"}, ["compile", "checkpoint"]) == "not compiled, no checkpoint"


def test_words_of_a_value_stand_behind_the_model():
    told = [BY_KEY[key].words(value) for key, value in (("context_length", 512), ("precision", "bf16"))]
    assert told == ["at context 512", "in bf16"]


def test_the_rest_of_the_dimensions_keeps_their_order():
    assert keys_without("mode", "model") == [key for key in KEYS if key not in ("mode", "model")]


def test_the_measured_program_knows_every_dimension_and_every_mode():
    assert set(KNOWN_DIMENSIONS) == set(KEYS)
    assert set(PHASES_OF_MODE) == set(MODES)


def test_no_dimension_is_of_the_measurement_and_of_the_machine():
    assert not set(KEYS) & set(MACHINE_KEYS)
