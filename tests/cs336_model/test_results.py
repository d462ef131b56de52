"""Results are typed when they are read."""

import pytest

from cs336_model.results import BadResult, Capture, OutOfMemory, Timing, read_result, write_result


def test_a_result_is_read_as_the_class_that_its_name_says(tmp_path):
    memory = OutOfMemory(during="warmup step 0: forward", requested_bytes=5)
    timing = Timing(status="out_of_memory", out_of_memory=memory, alone=[(1.5, 2.5)], step_seconds=[0.25])
    for name, result in (("timing", timing), ("capture", Capture(status="complete", ranks=2))):
        write_result(result, tmp_path / f"{name}.json")
        assert read_result(tmp_path / f"{name}.json") == result
    assert {path.name for path in tmp_path.iterdir()} == {"timing.json", "capture.json"}


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
