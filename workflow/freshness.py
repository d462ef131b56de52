"""Whether a result is what would be measured now. Imports no torch; nothing here runs it.

A result holds its key: the specification, a digest of the measured code, the versions and the GPU that measured it.
Planning writes the wanted keys to results/plan/measurements.json: the specification and the digest and, if this host
could measure a result and would do it with other versions, these. A key is a parameter of the rule that measures, and
the file is an input of merge, which compares. docs/freshness.md has the situations.
"""

import ast
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import msgspec

from cs336_model import locks
from cs336_model.results import STAGES
from kernel_tables.output import write_text
from workflow.grid import Config, ConfigError, Run, describe

IS_JOB = "--target-jobs" in sys.argv  # of another Snakemake, such as on a node of Slurm: it does not plan again
ROOT = Path(__file__).resolve().parents[1]
PLAN = Path("results/plan/measurements.json")
CODE = Path("results/plan/code")
MEASURED = CODE / "measured"


def plan_measurements(config: Config, runs: Mapping[str, Run]) -> dict[str, str]:
    """The wanted key of each result, by its path, as canonical JSON; written, too, if it changed. Raises ConfigError.
    A job takes what was planned, since its host may have other versions."""
    if IS_JOB:
        planned = msgspec.json.decode(PLAN.read_bytes(), type=dict[str, msgspec.Raw])
        return {path: bytes(key).decode() for path, key in planned.items()}
    code = {stage: digest_measured(stage, list_sources(config)) for stage in STAGES}
    plan = {}
    for name, run in runs.items():
        jobs = [(f"results/runs/{name}/{stage}.json", stage, 1) for stage in run.stages]
        if "timing" in run.stages:
            processes = range(2, config.timing.processes + 1)
            jobs += [(f"results/processes/{number}/{name}/timing.json", "timing", number) for number in processes]
        for path, stage, process in jobs:
            spec = msgspec.to_builtins(describe(config, run, stage, process))
            key = {"spec": spec, "code": code[stage], **choose_versions(stage, config, read_key(path))}
            plan[path] = msgspec.json.encode(key, order="sorted").decode()
    write_if_changed(PLAN, msgspec.json.encode({path: msgspec.Raw(key.encode()) for path, key in plan.items()}))
    return plan


def read_key(path: str) -> dict[str, Any] | None:
    """The key of a result; None if there is none that can be read."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, Any]).get("key")
    except (OSError, msgspec.DecodeError):
        return None


def choose_versions(stage: str, config: Config, own: Mapping[str, Any] | None) -> dict[str, str | None]:
    """The versions in the wanted key of a result with the key `own`: none, which is any, unless it has to be measured
    again for them, or was. A result of a GPU is judged only where a GPU and a PyTorch that can use it are here."""
    if own is None:
        return {}
    here = describe_host(stage, config.device, config.capture.backend)
    can_measure = here["gpu"] if own.get("gpu") else here["torch"]
    if can_measure and any(own.get(name) != version for name, version in here.items()):
        return here
    return {name: own.get(name) for name in here} if own.get("planned_versions") else {}


def complete_key(wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The key that a result measured here is stored with: the wanted one, and the versions of this host."""
    spec = wanted["spec"]
    versions = describe_host(spec["stage"], spec["device"], spec["backend"])
    return {**wanted, **versions, "planned_versions": "torch" in wanted}


def explain_difference(key: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What differs between the key of a result and the wanted one; empty if nothing does."""
    then, now = key.get("spec", {}), wanted["spec"]
    differing = [f"{name} was {then.get(name)}, is {now[name]}" for name in now if then.get(name) != now[name]]
    differing += ["the measured code changed"] if key.get("code") != wanted["code"] else []
    versions = [name for name in wanted if name not in ("spec", "code") and wanted[name] != key.get(name)]
    return "; ".join([*differing, *(f"{name} was {key.get(name)}, is {wanted[name]}" for name in versions)])


def command_for(results: Iterable[str | Path]) -> str:
    """The command that measures these results again: by their files or, if there are many, by their rules."""
    paths = sorted(map(str, results))
    if len(paths) >= 10:
        paths = sorted({"timing_process" if "processes" in path else Path(path).stem for path in paths})
    return f"snakemake --cores 1 all --forcerun {' '.join(paths)}"


@cache
def describe_host(stage: str, device: str, backend: str) -> dict[str, str | None]:
    """The versions here of what a stage uses; None for what is not here, or not used."""
    torch = find_torch()
    gpus, driver = find_gpus() if torch and "+cpu" not in torch and device != "cpu" else ([], None)
    gpu = ", ".join(sorted(set(gpus))) or None
    host = {"torch": torch, "driver": driver, "gpu": gpu}
    if stage == "capture":
        host["nsys"] = ask_version("nsys") if backend == "nsys" or (backend == "auto" and gpu) else None
    if stage == "counters":
        host["ncu"] = ask_version("ncu") if gpu else None
    return host


def find_torch() -> str | None:
    """The version of PyTorch here, without importing it."""
    return next((found.version for found in distributions(name="torch")), None)


@cache
def find_gpus() -> tuple[list[str], str | None]:
    """The name of each visible GPU of this host, and the version of the driver; ([], None) if there is none."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return [], None
    names, version = list(locks.host_gpus().values()), Path("/proc/driver/nvidia/version")
    query = ("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    driver = re.search(r"\b\d+\.\d+(\.\d+)?\b", version.read_text() if version.exists() else read_output(*query))
    return names, driver[0] if driver and names else None


def ask_version(program: str) -> str | None:
    """The version of nsys or ncu on PATH; None if it is not there."""
    version = re.search(r"\d{4}\.\d+\.\d+", read_output(program, "--version"))
    return version and version[0]


def read_output(*command: str) -> str:
    """What a program prints; empty if it is not there, or fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""


def list_sources(config: Config) -> list[str]:
    """The files in the working folder that are measured: the listed ones, and modules there that config.yaml names."""
    program = config.program
    named = [program.constructor, program.config, *program.replace, *program.replace.values()]
    named += [] if program.annotate == "modules" else program.annotate.values()
    named += [value for part in config.grids[config.grid] for value in part.attentions]
    modules = [name.partition(":")[0].replace(".", "/") + ".py" for name in named if name and ":" in name]
    return sorted({*program.sources, *(path for path in modules if Path(path).is_file())})


def digest_measured(stage: str, sources: Iterable[str]) -> str:
    """A digest of the code whose change makes results of a stage stale; `sources` are files of the working folder. A
    file keeps digests by what the code holds, since it takes long to find them. Raises ConfigError for a source that
    is no file."""
    patterns = ["cs336_model/*.py", "kernel_tables/marks/*.py"]
    if stage == "capture":  # what exports runs in the measured process, too
        patterns += [f"kernel_tables/{name}.py" for name in ("trace", "events", "modules", "capture", "publish")]
    files = read_files(patterns)
    for source in sources:
        if source in files and Path(source).samefile(ROOT / source):
            continue  # the working folder is the project: a result is as fresh in any other
        try:
            files[f"./{source}"] = Path(source).read_bytes()
        except OSError:
            raise ConfigError(f"program.sources: {source!r} is not a file of the folder {Path.cwd()}") from None
    known = msgspec.json.decode(MEASURED.read_bytes()) if MEASURED.is_file() else {}
    content = hash_files(files)
    if content not in known:
        known[content] = hash_files({name: strip_comments(name, text) for name, text in files.items()})
        write_if_changed(MEASURED, msgspec.json.encode(known))
    return known[content]


def read_files(patterns: Iterable[str]) -> dict[str, bytes]:
    """By name below the project's folder, the content of the files that match."""
    paths = sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.is_file()})
    return {str(path.relative_to(ROOT)): path.read_bytes() for path in paths}


def hash_files(files: Mapping[str, bytes]) -> str:
    """SHA-256 of the names and contents of files."""
    parts = (part for name, text in files.items() for part in (name.encode(), text))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def strip_comments(name: str, text: bytes) -> bytes:
    """The text of a file; of Python, its syntax tree without docstrings, so that neither they nor comments count."""
    return repr(list_nodes(ast.parse(text))).encode() if name.endswith(".py") else text


def list_nodes(node: object) -> object:
    """A syntax tree as lists, without texts that stand alone, and the same in every version of Python: those differ in
    what ast.dump writes of nothing."""
    if isinstance(node, ast.AST):
        fields = [(name, list_nodes(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
        return [type(node).__name__, *fields]
    if isinstance(node, list):
        values = [getattr(part.value, "value", None) if isinstance(part, ast.Expr) else None for part in node]
        return [list_nodes(part) for part, value in zip(node, values, strict=True) if not isinstance(value, str)]
    return node


def write_digest(rule: str, *patterns: str, settings: str = "") -> str:
    """The path of a file with a digest of these files, of the engine and the modules that scripts share, and of
    settings; written if it changed. It is an input of the rule, so that a change is seen by content, and without
    Snakemake's metadata."""
    target = CODE / rule
    own = hash_files(read_files(patterns))
    write_if_changed(target, hashlib.sha256(f"{digest_shared()} {own} {settings}".encode()).hexdigest().encode())
    return str(target)


@cache
def digest_shared() -> str:
    """The digest of what all scripts of analysis use: the engine, its data, and the modules of workflow/."""
    patterns = [f"kernel_tables/**/*.{suffix}" for suffix in ("py", "toml", "js", "css", "j2")]
    patterns += [f"cs336_model/{name}.py" for name in ("results", "spec")]
    return hash_files(read_files([*patterns, "workflow/*.py", "workflow/columns.yaml"]))


def write_if_changed(path: Path, content: bytes) -> None:
    """Writes a file whole, unless it has this content, or this is a job."""
    if IS_JOB or (path.is_file() and path.read_bytes() == content):
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(content, path)
