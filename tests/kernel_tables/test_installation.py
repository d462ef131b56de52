"""The distribution: the wheel in an environment that has what it declares and nothing else."""

import ast
import os
import re
import subprocess
import sys
from importlib.metadata import PackagePath, distribution, packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.kernel_tables.synthetic import Synthetic

ROOT = Path(__file__).parents[2]
PACKAGES = ("kernel_recorder", "kernel_tables", "range_marks")


def run(*command, **options) -> subprocess.CompletedProcess:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def pip(*arguments) -> None:
    offline = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run(sys.executable, "-m", "pip", *arguments, env=os.environ | offline)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT)
    (built,) = folder.iterdir()
    return built


def sources() -> set[Path]:
    return {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def declared(wheel: Path) -> set[str]:
    """The names of the distributions that the wheel says it needs."""
    with ZipFile(wheel) as archive:
        (path,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return names_of_requirements(re.findall(r"^Requires-Dist: (.*)$", archive.read(path).decode(), re.MULTILINE))


def names_of_requirements(requirements: list[str]) -> set[str]:
    """The distributions that are needed whatever extra is asked for, by their normalised names."""
    needed = [text for text in requirements if "extra ==" not in text]
    return {re.match(r"[\w.-]+", text)[0].lower().replace("_", "-") for text in needed}


def with_what_they_need(names: set[str]) -> set[str]:
    """These distributions and all that they need in turn, as far as they are installed here."""
    found, waiting = set(), set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        further = names_of_requirements(distribution(name).requires or []) - found
        installed = {
            other.lower().replace("_", "-") for others in packages_distributions().values() for other in others
        }
        waiting |= further & installed
    return found


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory) -> Path:
    """A virtual environment with the wheel, and links to the distributions that it declares."""
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    for name in with_what_they_need(declared(wheel)):
        files: list[PackagePath] = distribution(name).files
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (site_packages / top).symlink_to(distribution(name).locate_file(top))
    pip("--python", folder / "bin" / "python", "install", "--no-deps", wheel)
    pip("--python", folder / "bin" / "python", "check")
    return folder


def test_the_wheel_holds_the_package_and_its_rules_and_nothing_of_the_pipeline(wheel):
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0] for name in names} == {
        *PACKAGES,
        f"{'-'.join(wheel.name.split('-')[:2])}.dist-info",
    }
    here = {path.relative_to(ROOT).as_posix() for path in sources()}
    of_pages = {
        path.relative_to(ROOT).as_posix()
        for room in ("page", "report")
        for kind in ("css", "js", "j2")
        for path in (ROOT / "kernel_tables" / room).glob(f"*.{kind}")
    }
    assert len(of_pages) == 9
    assert here | of_pages | {"kernel_tables/kernel_classes/class_rules.toml"} <= set(names)


def imported_from_outside(paths) -> set[str]:
    """The packages that these files import anywhere, without the standard library and this package."""
    imported = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
    return imported - sys.stdlib_module_names - set(PACKAGES)


def test_what_the_wheel_declares_is_what_it_imports(wheel):
    rooms = ("range_marks", "kernel_recorder/in_process")
    in_the_program = {path for room in rooms for path in (ROOT / room).rglob("*.py")}
    outside = imported_from_outside(sources() - in_the_program)
    distributions = packages_distributions()
    assert {distributions[name][0].lower().replace("_", "-") for name in outside} == declared(wheel)
    assert imported_from_outside(in_the_program) == {"torch", "nvtx"}  # of what is measured, not of who reads it


def test_the_installed_command_runs_anywhere_without_torch_or_snakemake(environment, tmp_path):
    capture = Synthetic().range("step", 0, 50).kernel("cutlass_80_tensorop_gemm", at=20).write(tmp_path / "c.sqlite")
    command = [environment / "bin" / "kernel-tables", "classes", capture]
    done = run(*command, cwd=tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.stdout.splitlines()[1].startswith("gemm,1,1,10,1.0,cutlass")
    imported = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert {"kernel_tables.views.tables", "pandas"} <= imported
    assert not {"torch", "snakemake", "cs336_model", "profile_grid", "workflow"} & imported


def test_every_subcommand_works_with_the_declared_packages_alone(environment, tmp_path):
    capture = Synthetic().range("step", 0, 50).kernel("gemm", at=20).write(tmp_path / "capture.sqlite")
    for name in ("ranges", "kernels", "classes", "check", "trace", "report"):
        output = tmp_path / (name + {"trace": ".json", "report": ".html"}.get(name, ".parquet"))
        run(environment / "bin" / "kernel-tables", name, capture, "-o", output, cwd=tmp_path)
        assert output.stat().st_size > 0


def test_a_program_of_another_environment_is_recorded_by_what_the_wheel_installed(environment, tmp_path):
    source = "import sys; print(sys.modules['kernel_recorder.in_process.attach'].__file__)"
    command = [environment / "bin" / "kernel-tables", "record", "--", sys.executable, "-c", source]
    done = run(*command, cwd=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(environment)
    assert "the program did not import PyTorch" in done.stderr


def test_the_help_names_the_command_as_it_was_started(environment, tmp_path):
    installed = run(environment / "bin" / "kernel-tables", "--help", cwd=tmp_path)
    module = run(environment / "bin" / "python", "-m", "kernel_tables", "--help", cwd=tmp_path)
    assert installed.stdout.startswith("usage: kernel-tables [-h]")
    assert module.stdout.startswith("usage: python -m kernel_tables [-h]")
