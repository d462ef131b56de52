"""The distribution: `pip install .` brings the command and the package, which need no more than is declared."""

import ast
import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml

import kernel_tables

ROOT = Path(__file__).parents[1]
CAPTURE = ROOT / "tests" / "captures" / "tiny_2025.3.1.sqlite.gz"


def run(*command, **options) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A virtual environment with the distribution; packages of others are those of this environment."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    others = next(path for path in sys.path if path.endswith("site-packages"))
    (site_packages / "others.pth").write_text(others)
    offline = ["install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--no-compile"]
    run(sys.executable, "-m", "pip", "--python", folder / "bin" / "python", *offline, ROOT)
    return folder


def test_the_installed_command_reads_and_records_and_the_package_marks(environment, tmp_path):
    assert run(environment / "bin" / "kernel-tables", "kernels", CAPTURE, "--format", "csv", cwd=tmp_path)
    (tmp_path / "train.py").write_text(
        "import sys, torch\nfrom kernel_tables.marks import mark\n"
        "print(sys.modules['kernel_tables.record.handover'].__file__)\n"
        "model = torch.nn.Sequential(torch.nn.Linear(4, 4))\n"
        "for _ in range(3):\n"
        "    with torch.profiler.record_function('step'), mark(model):\n"
        "        model(torch.ones(4))\n"
    )
    options = ["--profiler", "torch", "--range", "step", "--skip", 1, "--steps", 1]
    out = run(environment / "bin" / "kernel-tables", "record", *options, "--", sys.executable, "train.py", cwd=tmp_path)
    assert Path(out.strip()).is_relative_to(environment)
    table = run(environment / "bin" / "kernel-tables", "ranges", "recording.sqlite", "--format", "csv", cwd=tmp_path)
    assert {"step", "Sequential", "Linear"} <= {line.partition(",")[0] for line in table.splitlines()}


def imported_distributions(*packages: str) -> set[str]:
    """The distributions of others that packages of this project import anywhere."""
    imported = set()
    for path in (path for package in packages for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.partition(".")[0])
    imported -= sys.stdlib_module_names | {"kernel_tables", "cs336_model", "workflow"}
    found = packages_distributions()
    return {found.get(name, [name])[0].lower().replace("_", "-") for name in imported}


def test_what_is_declared_and_required_is_what_is_imported():
    text = (ROOT / "pyproject.toml").read_text()
    declared = set(re.findall(r'"([a-z0-9-]+)>=', re.search(r"dependencies = \[(.*?)\n\]", text, re.DOTALL)[1]))
    # PyTorch and nvtx are those of the measured program; pandas needs Arrow for Parquet
    assert imported_distributions("kernel_tables") - {"torch", "nvtx"} | {"pyarrow"} == declared
    lines = (ROOT / "envs/requirements.txt").read_text().splitlines()
    listed = {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in lines if line[:1] not in ("", "#")}
    unseen = {"pygments", "snakemake", "tabulate"}  # of snakemake --report, a command, of pandas
    optional = {"markupsafe", "cs336-basics"}  # comes with Jinja, a model of others
    assert imported_distributions("kernel_tables", "cs336_model", "workflow") - optional == listed - unseen


def test_the_changelog_begins_with_the_version_and_the_citation_names_it():
    version = kernel_tables.__version__
    assert re.search(r"^## (\S+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).group(1) == version
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
