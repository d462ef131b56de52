"""Makes everything again from the results of the measurements, and prints how the files on disk differ from it.

The same rules make it in a separate folder, with links to the results, and no file on disk is changed. The exit status
is 1 if a file differs.
"""

import gzip
import json
import os
import subprocess
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path

import pandas as pd

from kernel_tables.clean_text import visible
from kernel_tables.reading import nsys
from profile_grid import errors, quantities
from profile_grid.comparing.results import PLAN
from profile_grid.freshness.records import LOCK_FILE, RECORDS_FILE
from profile_grid.host.processes.ranks import existing_rank_files
from profile_grid.results.load_runs import require_fresh
from profile_grid.results.results import read_result
from profile_grid.study.runs import grid_plan
from profile_grid.study.stages import CAPTURE, STAGE_BY_NAME

MAX_CHARS = 120  # of a line or value in a message
ROOT = Path(__file__).parents[2]
ANALYSIS_RULE = "analysis"  # requests all that is made from results
MAX_FORCED = 20  # files in a proposed command


def main(*, config: dict, sources: dict, results: Path, cores: int = 1) -> None:
    entries = grid_plan(config)["runs"]
    require_results(entries, results, sources)
    with tempfile.TemporaryDirectory() as scratch:
        link_results(entries, results, Path(scratch, "results"))
        make_again(config, Path(scratch), cores)
        count, lines = differences(Path(scratch, "results"), results)
    print("".join(f"{line}\n" for line in lines.values()), end="")
    if lines:
        forced = [*list(lines)[:MAX_FORCED], *(["..."] if len(lines) > MAX_FORCED else [])]
        raise errors.OutsideError(
            f"{len(lines)} of {count} files are not what the results give; make them again:"
            f" snakemake --cores 1 all --forcerun {' '.join(forced)}"
        )
    print(f"{count} files, made from the results of {len(entries)} runs, are what these give")


def require_results(entries: list[dict], results: Path, source_digests: dict[str, str]) -> None:
    """Raises OutsideError if a result of these runs of the plan is missing, unusable or stale."""
    missing = [entry["run"] for entry in entries if not is_measured(entry, results / "runs" / entry["run"])]
    if missing and (other := other_runs(entries, results)):
        raise errors.OutsideError(
            f"{results}/ holds {other}, and of the grid that these settings name {len(missing)} of {len(entries)} runs"
            " are not there; give the settings that were measured: snakemake verify --config grid=NAME, or --configfile"
        )
    if missing:
        raise errors.OutsideError(
            f"{len(missing)} of {len(entries)} runs have no results to verify: {', '.join(missing[:5])}; to measure"
            " them: snakemake --cores 1 all"
        )
    for entry in entries:
        require_fresh(entry, results / "runs" / entry["run"], source_digests)


def other_runs(entries: list[dict], results: Path) -> str | None:
    """The grid of the folder's own plan, in words, if it has other runs; None if it has these, or there is no plan."""
    try:
        plan = json.loads((results / PLAN).read_text())
    except (FileNotFoundError, ValueError):
        return None
    planned = plan.get("runs", ())  # an earlier version had grids without runs
    same = {entry["run"] for entry in planned} == {entry["run"] for entry in entries}
    return None if same else f"the grid {visible(plan['grid'])} ({quantities.counted(len(planned), 'run')})"


def is_measured(entry: dict, folder: Path) -> bool:
    """Whether a run has the results of all its stages."""
    return all((folder / STAGE_BY_NAME[name].result_file).exists() for name in entry["specifications"])


def files_of_run(entry: dict) -> list[str]:
    """The files that the stages of a run write, or may write."""
    stages = [STAGE_BY_NAME[name] for name in entry["specifications"]]
    return [name for stage in stages for name in (stage.result_file, *stage.files, *stage.optional_files)]


def link_results(entries: list[dict], results: Path, scratch: Path) -> None:
    """Creates links to the results of these runs, likewise below `scratch`."""
    for entry in entries:
        folder = scratch / "runs" / entry["run"]
        folder.mkdir(parents=True)
        for path in existing_rank_files(results / "runs" / entry["run"], *files_of_run(entry)):
            (folder / path.name).symlink_to(path.absolute())


def make_again(config: dict, folder: Path, cores: int) -> None:
    """Runs the rules of the analysis in the folder; raises OutsideError with their messages if they fail."""
    (folder / "config.json").write_text(json.dumps(config))
    command = [
        sys.executable, "-m", "snakemake", ANALYSIS_RULE, f"--snakefile={ROOT / 'Snakefile'}", f"--directory={folder}",
        f"--configfile={folder / 'config.json'}", "--profile=none", "--workflow-profile=none", "--executor=local",
        "--scheduler=greedy", "--quiet=all", f"--cores={cores}",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
    if process.returncode:
        raise errors.OutsideError(f"the analysis fails, so nothing can be compared:\n{process.stdout}{process.stderr}")


def differences(copy: Path, results: Path) -> tuple[int, dict[str, str]]:
    """The number of files made again in `copy` and compared, and {path in `results`: a line} for those that differ."""
    paths = [path for path in sorted(copy.rglob("*")) if path.is_file() and not path.is_symlink()]
    paths = [path for path in paths if path.name not in (RECORDS_FILE, LOCK_FILE)]
    compared = [path.relative_to(copy) for path in paths if is_comparable(path, copy)]
    lines = {str(results / path): file_difference(copy / path, results / path) for path in compared}
    return len(compared), {path: line for path, line in lines.items() if line}


def is_comparable(path: Path, copy: Path) -> bool:
    """Whether this machine makes a file as the machine that measured does. Otherwise it is one of nsys's own reports,
    and this machine does not have the version of nsys that captured the run."""
    texts = CAPTURE.tables_of_a_run.texts
    run = next((parent for parent in path.parents if parent.parent == copy / "runs"), None)
    if run is None or str(path.relative_to(run)) not in texts:
        return True
    capture = read_result(run / CAPTURE.result_file)
    return capture.facts["backend"] != "nsys" or capture.facts["nsys"] == nsys.version()


def file_difference(expected_path: Path, path: Path) -> str | None:
    """One line on what differs in the file at `path` from a file that was just made; None if nothing differs."""
    if not path.exists():
        return f"{path} is missing"
    if expected_path.suffix == ".parquet":
        return parquet_difference(pd.read_parquet(expected_path), path)
    expected, actual = _content(expected_path), _content(path)
    if expected == actual:
        return None
    try:
        return text_difference(expected.decode(), actual.decode(), path)
    except UnicodeDecodeError:
        return f"{path}: its {len(actual)} bytes are not the {len(expected)} that should be there"


def text_difference(expected: str, actual: str, path: Path) -> str:
    """One line with the number of lines that differ, and the first of them."""
    pairs = enumerate(zip_longest(expected.split("\n"), actual.split("\n")), start=1)
    differing = [(number, wanted, line) for number, (wanted, line) in pairs if wanted != line]
    number, wanted, line = differing[0]
    return f"{path}: {len(differing)} line(s) differ; line {number} is {_quoted(line)} and should be {_quoted(wanted)}"


def parquet_difference(expected: pd.DataFrame, path: Path) -> str | None:
    """One line with the columns that differ, and the first value that does; None if nothing differs."""
    try:
        actual = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # Arrow's errors are of either kind
        return f"{path} cannot be read ({str(error).splitlines()[0]})"
    if list(expected.columns) != list(actual.columns) or len(expected) != len(actual):
        return f"{path}: {_shape(actual)}, and {_shape(expected)} should be there"
    differing = [column for column in expected if not expected[column].equals(actual[column])]
    if not differing:
        return None
    return f"{path}: column(s) {', '.join(differing)} differ; {_first_value(expected, actual, differing[0])}"


def _first_value(expected: pd.DataFrame, actual: pd.DataFrame, column: str) -> str:
    expected_texts, texts = expected[column].astype(str), actual[column].astype(str)
    row = next((row for row in range(len(texts)) if expected_texts[row] != texts[row]), None)
    if row is None:
        return f"{column} is {actual[column].dtype} and should be {expected[column].dtype}"
    return f"row {row} of {column} is {texts[row][:MAX_CHARS]} and should be {expected_texts[row][:MAX_CHARS]}"


def _content(path: Path) -> bytes:
    """The bytes of a file. Those of a packed file are unpacked, since it also holds the time of packing."""
    if path.suffix != ".gz":
        return path.read_bytes()
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError):
        return b""


def _shape(table: pd.DataFrame) -> str:
    return f"{len(table)} rows of {len(table.columns)} columns"


def _quoted(line: str | None) -> str:
    return "not there" if line is None else repr(line[:MAX_CHARS])
