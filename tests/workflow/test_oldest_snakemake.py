"""The oldest Snakemake that envs/requirements.txt admits runs the same jobs again as the one of envs/lock.txt.

.ci/run installs it into .venv/oldest, next to the packages that the other tests use.
"""

import os
import re
import subprocess
import sys

import pytest

from tests.workflow.conftest import ROOT
from tests.workflow.test_invalidation import edited

OLDEST = ROOT / ".venv" / "oldest"


@pytest.fixture
def planned(project):
    """The rules that the oldest Snakemake plans in a project, and how many jobs of each."""
    if not OLDEST.exists():
        pytest.skip("there is no other Snakemake in .venv/oldest: .ci/run installs it")

    def plan():
        command = [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "1", "--quiet", "reason"]
        environment = os.environ | {"PYTHONPATH": str(OLDEST)}
        run = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        output = run.stdout + run.stderr
        assert run.returncode == 0, output
        return {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", output, re.MULTILINE)}

    return plan


def test_the_oldest_snakemake_plans_nothing_again_and_after_an_edit_what_reads_what_is_made_again(project, planned):
    assert planned() == {}
    edited("profile_grid/figures/theme.py")(project)
    assert planned() == {"figures": 1, "page": 1, "all": 1, "total": 3}
