"""The environment variables of a measured program, what a result records of them, and whether they have changed.

There are three kinds. Values that may change a measurement are recorded in clear. Variables that locate files or choose
GPUs are not recorded: the loaded code and the kind of device are compared instead. For variables that the configuration
names, a salted digest is recorded, since they may hold a password.
"""

import hmac
import json
import os
import secrets
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass

# What a CUDA program needs to start; everything else stays outside, because nsys copies the whole environment of the
# profiled process into its report.
LOCATING = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "TMPDIR",
    "LANG",
    "LC_ALL",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)
VALUES = ("CUDA_LAUNCH_BLOCKING",)
PREFIXES = (
    "OMP_",
    "MKL_",
    "KMP_",
    "NCCL_",  # NCCL_NVLS_ENABLE is 0 if NVLink multicast has to stay off
    "CUBLAS_",
    "CUDNN_",
    "TORCH_",
    "PYTORCH_",
    "TORCHINDUCTOR_",
)
# the ends of names that locate files or devices, or may hold private values
NO_VALUES = ("DIR", "PATH", "HOME", "FILE", "_ID", "HOSTID", "_IFNAME", "_HCA", "_ADDR", "_URL", "_TOKEN", "_KEY")
SET_BY_SNAKEMAKE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # for every job, to the threads of its rule
USERS_VARIABLE = "PROFILE_GRID_USERS_THREADS"  # holds their values as the user set them, as JSON


@dataclass(frozen=True)
class RecordedEnvironment:
    """The environment in a result: values in clear, salted digests of the custom variables (None: unset), whether a
    plan can see the packages that were measured, and the names of the GPUs that could be used."""

    values: dict[str, str]
    salt: str | None
    digests: dict[str, str | None]
    planners_python: bool
    gpus: list[str]


def keep_users_values(environment: MutableMapping[str, str]) -> None:
    """Records the user's values of variables that Snakemake sets for its jobs."""
    users = {name: environment[name] for name in SET_BY_SNAKEMAKE if name in environment}
    environment.setdefault(USERS_VARIABLE, json.dumps(users))


def counting_values(source: Mapping[str, str], custom: Iterable[str] = ()) -> dict[str, str]:
    """The variables set by the user whose values may change a measurement, without the custom ones."""
    users = _users(source)
    hidden = {*LOCATING, *custom}
    return {name: users[name] for name in sorted(users) if name not in hidden and _counts(name, users[name])}


def allowed_variables(source: Mapping[str, str], custom: Iterable[str] = ()) -> dict[str, str]:
    """The variables that a measured program is given; `custom` are the names in the configuration."""
    custom = list(custom)
    variables = {name: source[name] for name in (*LOCATING, *SET_BY_SNAKEMAKE, *custom) if name in source}
    users = _users(source)
    return variables | counting_values(source) | {name: users[name] for name in custom if name in users}


def variables_record(source: Mapping[str, str], custom: Iterable[str]) -> dict:
    """The variables of a program, as its result records them."""
    salt, users = secrets.token_hex(16), _users(source)
    names = _hidden_names(custom)
    digests = {name: _digest(salt, users[name]) if name in users else None for name in names}
    return {"values": counting_values(source, names), "salt": salt if names else None, "digests": digests}


def changed_environment(recorded: RecordedEnvironment, source: Mapping[str, str], custom: Iterable[str]) -> str | None:
    """A message on the first variable that would have another value now; or None. Values of custom variables are
    not shown."""
    names = _hidden_names(custom)
    before, now = recorded.values, counting_values(source, names)
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            return f"the environment has changed: {name} was {_shown(before.get(name))} and is {_shown(now.get(name))}"
    users = _users(source)
    for name in names:
        digest = recorded.digests.get(name)
        if digest is None and name in users:
            return f"the environment has changed: {name} was unset and has a value"
        if digest is not None and name not in users:
            return f"the environment has changed: {name} had a value and is unset"
        if digest is not None and not hmac.compare_digest(digest, _digest(recorded.salt or "", users[name])):
            return f"the environment has changed: {name} has another value"
    return None


def _hidden_names(custom: Iterable[str]) -> list[str]:
    return sorted(set(custom) - set(LOCATING))


def _users(source: Mapping[str, str]) -> Mapping[str, str]:
    """The variables as the user set them, also in a job of Snakemake."""
    if USERS_VARIABLE not in source:
        return source
    recorded = {name: value for name, value in source.items() if name not in SET_BY_SNAKEMAKE}
    return recorded | json.loads(source[USERS_VARIABLE])


def _counts(name: str, value: str) -> bool:
    return (name in VALUES or (name.startswith(PREFIXES) and not name.endswith(NO_VALUES))) and os.sep not in value


def _digest(salt: str, value: str) -> str:
    return hmac.new(salt.encode(), value.encode(errors="surrogateescape"), "sha256").hexdigest()


def _shown(value: str | None) -> str:
    return "unset" if value is None else value
