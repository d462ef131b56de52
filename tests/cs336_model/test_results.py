"""Results are typed when they are read."""

import pytest

from cs336_model.results import BadResult, read_result


@pytest.mark.parametrize("text", ['{"status": "complete", "step_seco', '{"status": "complete", "losses": [null]}'])
def test_a_damaged_result_is_named_with_the_command_that_measures_again(tmp_path, text):
    path = tmp_path / "timing.json"
    path.write_text(text)
    with pytest.raises(BadResult, match=f"^{path}: (Input data was truncated|Expected .float.).*--forcerun {path}$"):
        read_result(path)
