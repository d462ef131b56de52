"""Results are typed when they are read."""

import pytest

from cs336_model.results import BadResult, read_result


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("timing", '{"status": "complete", "step_seco', "Input data was truncated"),
        ("timing", '{"status": "complete", "losses": [null]}', "Expected `float`, got `null`"),
    ],
)
def test_a_damaged_result_is_named_with_the_command_that_measures_again(tmp_path, name, text, message):
    path = tmp_path / f"{name}.json"
    path.write_text(text)
    with pytest.raises(BadResult) as refused:
        read_result(path)
    said = str(refused.value)
    assert said.startswith(f"{path}: ") and message in said and "\n" not in said
    assert said.endswith(f"snakemake --forcerun {path}")
