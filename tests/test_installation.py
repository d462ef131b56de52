"""The distributions: the wheel of all three libraries, and each library alone, with no more than it declares."""

import ast
import contextlib
import json
import os
import re
import subprocess
import sys
from importlib.metadata import PackagePath, distribution, packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from hatchling.build import build_wheel

import kernel_tables
from tests.kernel_tables.synthetic import Synthetic

ROOT = Path(__file__).parents[1]
CAPTURE = ROOT / "tests" / "captures" / "tiny_2025.3.1.sqlite.gz"
PACKAGES = ("kernel_recorder", "kernel_tables", "range_marks")


def run(*command, status=0, **options) -> subprocess.CompletedProcess:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, **options)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def pip(*arguments) -> None:
    offline = {"PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    run(sys.executable, "-m", "pip", *arguments, env=os.environ | offline)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """The wheel of each library, made in its folder."""
    return {package: built_wheel(ROOT / package, tmp_path_factory.mktemp(package)) for package in PACKAGES}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of all libraries, made at the root."""
    return built_wheel(ROOT, tmp_path_factory.mktemp("all"))


def built_wheel(source: Path, folder: Path) -> Path:
    with contextlib.chdir(source):
        return folder / build_wheel(str(folder))


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


def contents(wheel: Path) -> dict[str, bytes]:
    """What a wheel installs, and how its command is called."""
    with ZipFile(wheel) as archive:
        return {
            name.rpartition(".dist-info/")[2]: archive.read(name)
            for name in archive.namelist()
            if ".dist-info/" not in name or name.endswith("entry_points.txt")
        }


def test_the_wheel_of_all_holds_the_libraries_with_their_data_and_nothing_of_the_pipeline(wheel):
    data = {
        path
        for kind in ("css", "j2", "js", "toml")
        for path in (ROOT / "kernel_tables").rglob(f"*.{kind}")
        if path.name != "pyproject.toml"
    }
    assert len(data) == 10
    here = {path.relative_to(ROOT).as_posix() for path in sources() | data}
    assert set(contents(wheel)) == here | {"entry_points.txt"}


def test_the_wheels_of_the_libraries_share_no_file_and_together_are_the_wheel_of_all(wheel, wheels):
    for package, built in wheels.items():
        assert {name.partition("/")[0] for name in contents(built)} - {"entry_points.txt"} == {package}
    together = {name: content for built in wheels.values() for name, content in contents(built).items()}
    assert together == contents(wheel)
    assert {built.name.split("-")[1] for built in (wheel, *wheels.values())} == {kernel_tables.__version__}


def imported_from_outside(paths) -> set[str]:
    """The packages that these files import anywhere, without the standard library and those that they are of."""
    imported, paths = set(), list(paths)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module.partition(".")[0])
    return imported - sys.stdlib_module_names - {path.relative_to(ROOT).parts[0] for path in paths}


# What is imported and not declared: PyTorch and nvtx are those of the measured program, the rest is asked for by name.
NOT_DECLARED = {
    "kernel_recorder": {"torch"},
    "kernel_tables": {"kernel_recorder"},
    "range_marks": {"nvtx", "torch"},
}


def test_what_a_wheel_declares_is_what_it_imports(wheel, wheels):
    distributions = {name: [name] for name in PACKAGES} | dict(packages_distributions())
    needed = {}
    for package, built in wheels.items():
        imported = imported_from_outside(set((ROOT / package).rglob("*.py")))
        assert NOT_DECLARED[package] <= imported
        needed[package] = {
            distributions[name][0].lower().replace("_", "-") for name in imported - NOT_DECLARED[package]
        }
        assert needed[package] == declared(built)
    own = {name.replace("_", "-") for name in PACKAGES}
    assert declared(wheel) == set().union(*needed.values()) - own


def test_the_requirements_of_the_pipeline_are_what_it_and_the_libraries_import():
    unseen = {"itables": "files", "pygments": "snakemake --report", "snakemake": "a command", "tabulate": "by pandas"}
    optional = {"cs336-basics"}  # a model of others
    listed = names_of_requirements(
        [line for line in (ROOT / "envs/requirements.txt").read_text().splitlines() if not line.startswith("#")]
    )
    distributions = packages_distributions()
    needed = set()
    for package in (*PACKAGES, "cs336_model", "workflow"):
        imported = imported_from_outside((ROOT / package).rglob("*.py")) - {*PACKAGES, "cs336_model", "workflow"}
        needed |= {distributions.get(name, [name])[0].lower().replace("_", "-") for name in imported}
    libraries = {"adbc-driver-manager", "markupsafe"}  # come with those that are listed
    assert needed - libraries - optional == listed - unseen.keys()


@pytest.fixture(scope="module")
def alone(wheels, tmp_path_factory):
    """A function that runs Python with some of the libraries, unpacked, and this environment's packages of others."""
    folder = tmp_path_factory.mktemp("alone")
    for package, built in wheels.items():
        with ZipFile(built) as archive:
            archive.extractall(folder / f"with_{package}")

    def python(packages, *arguments, status=0) -> subprocess.CompletedProcess:
        path = os.pathsep.join(str(folder / f"with_{package}") for package in packages)
        command = [sys.executable, *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": path}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stdout + done.stderr
        return done

    there = f"from importlib.util import find_spec as f; print([name for name in {PACKAGES} if f(name)])"
    assert python([], "-c", there).stdout == "[]\n"
    return python


def example_of(package: str) -> str:
    """The first block of Python in the page of a library."""
    return re.search(r"```python\n(.*?)```", (ROOT / package / "README.md").read_text(), re.DOTALL)[1]


def test_range_marks_alone_marks_the_modules_of_a_model(alone):
    shown = "print(*sorted({event.name for event in profiler.events() if not event.name.startswith(('aten', 'auto'))}))"
    names = alone(["range_marks"], "-c", example_of("range_marks") + shown).stdout.split()
    assert {"Sequential", "Linear", "GELU", "backward"} <= set(names)


def test_kernel_tables_alone_reads_a_capture_and_says_what_recording_needs(alone):
    table = alone(["kernel_tables"], "-m", "kernel_tables", "kernels", CAPTURE, "--format", "json").stdout
    assert json.loads(table)
    refused = alone(["kernel_tables"], "-m", "kernel_tables", "record", "--skip", 1, "--", "true", status=2).stderr
    assert refused == f"kernel-tables: {kernel_tables.NO_RECORDER}\n"
    error = alone(["kernel_tables"], "-c", "import kernel_tables; kernel_tables.recorded", status=1).stderr
    assert error.endswith(f"ModuleNotFoundError: {kernel_tables.NO_RECORDER}\n")


def test_kernel_recorder_with_the_two_that_it_declares_records_a_program(alone, wheels, tmp_path):
    assert declared(wheels["kernel_recorder"]) == {"kernel-tables", "range-marks"}
    assert (
        "step"
        in alone(PACKAGES, "-c", f"import os; os.chdir({str(tmp_path)!r})\n" + example_of("kernel_recorder")).stdout
    )
    (tmp_path / "train.py").write_text(
        "import torch\nwith torch.profiler.record_function('forward'):\n    torch.ones(64, 64) @ torch.ones(64, 64)\n"
    )
    record = [
        "record",
        "--profiler",
        "torch",
        "--range",
        "forward",
        "--skip",
        0,
        "--steps",
        1,
        "-o",
        tmp_path / "r.sqlite",
    ]
    alone(PACKAGES, "-m", "kernel_tables", *record, "--", sys.executable, tmp_path / "train.py")
    with kernel_tables.Trace(tmp_path / "r.sqlite") as trace:
        assert "forward" in set(trace.ranges()["range"])


def test_the_installed_command_runs_anywhere_without_torch_or_snakemake(environment, tmp_path):
    capture = Synthetic().range("step", 0, 50).kernel("cutlass_80_tensorop_gemm", at=20).write(tmp_path / "c.sqlite")
    command = [environment / "bin" / "kernel-tables", "classes", capture]
    done = run(*command, cwd=tmp_path, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.stdout.splitlines()[1].startswith("gemm,1,1,10,1.0,cutlass")
    imported = set(re.findall(r"\| +([\w.]+)$", done.stderr, re.MULTILINE))
    assert {"kernel_tables.views.tables", "pandas"} <= imported
    assert not {"torch", "snakemake", "cs336_model", "workflow"} & imported


def test_every_subcommand_works_with_the_declared_packages_alone(environment, tmp_path):
    capture = Synthetic().range("step", 0, 50).kernel("gemm", at=20).write(tmp_path / "capture.sqlite")
    for name in ("ranges", "kernels", "classes", "check", "trace", "report"):
        output = tmp_path / (name + {"trace": ".json", "report": ".html"}.get(name, ".parquet"))
        run(environment / "bin" / "kernel-tables", name, capture, "-o", output, cwd=tmp_path)
        assert output.stat().st_size > 0


def test_a_program_of_another_environment_is_recorded_by_what_the_wheel_installed(environment, tmp_path):
    source = "import sys; print(sys.modules['kernel_recorder.in_process.attach'].__file__)"
    command = [environment / "bin" / "kernel-tables", "record", "--", sys.executable, "-c", source]
    done = run(*command, cwd=tmp_path, status=3)
    assert Path(done.stdout.strip()).is_relative_to(environment)
    assert "the program did not import PyTorch" in done.stderr


def test_the_help_names_the_command_as_it_was_started(environment, tmp_path):
    installed = run(environment / "bin" / "kernel-tables", "--help", cwd=tmp_path)
    module = run(environment / "bin" / "python", "-m", "kernel_tables", "--help", cwd=tmp_path)
    assert installed.stdout.startswith("usage: kernel-tables [-h]")
    assert module.stdout.startswith("usage: python -m kernel_tables [-h]")
