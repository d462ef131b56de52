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

# What a CUDA program needs to start; no result records these. A measured program is given them, the relevant variables
# and those that the configuration names. It gets no others, because nsys copies its whole environment into the report.
LOCATION_VARIABLES = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "TMPDIR", "LANG", "LC_ALL",
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES",
)  # fmt: skip
# Names and beginnings of names of variables whose values may change a measurement. NCCL_NVLS_ENABLE is 0 if NVLink
# multicast has to stay off.
RELEVANT_NAMES = ("CUDA_LAUNCH_BLOCKING",)
RELEVANT_PREFIXES = (
    "OMP_", "MKL_", "KMP_", "NCCL_", "CUBLAS_", "CUDNN_", "TORCH_", "PYTORCH_", "TORCHINDUCTOR_",
)  # fmt: skip
# A name that ends like this is not relevant: its variable locates files or devices, or may hold a private value.
PRIVATE_SUFFIXES = (
    "DIR", "PATH", "HOME", "FILE", "_ID", "HOSTID", "_IFNAME", "_HCA", "_ADDR", "_URL", "_TOKEN", "_KEY",
)  # fmt: skip
SET_BY_SNAKEMAKE = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # for every job, to the threads of its rule
USERS_VARIABLE = "PROFILE_GRID_USERS_THREADS"  # the values of SET_BY_SNAKEMAKE that the user set, as JSON


@dataclass(frozen=True)
class RecordedEnvironment:
    """The environment in a result."""

    values: dict[str, str]  # in clear
    salt: str | None  # of the digests
    digests: dict[str, str | None]  # of the variables that the configuration names; None if unset
    planners_python: bool  # whether the program ran in Snakemake's Python, whose packages a plan can see
    gpus: list[str]  # names of the GPUs that the program could use


def record_users_values(environment: MutableMapping[str, str]) -> None:
    """Records the user's values of variables that Snakemake sets for its jobs."""
    users = {name: environment[name] for name in SET_BY_SNAKEMAKE if name in environment}
    environment.setdefault(USERS_VARIABLE, json.dumps(users))


def relevant_variables(environment: Mapping[str, str], custom_names: Iterable[str] = ()) -> dict[str, str]:
    """The variables set by the user whose values may change a measurement, without those in `custom_names`."""
    users = _users_variables(environment)
    excluded = {*LOCATION_VARIABLES, *custom_names}
    return {name: users[name] for name in sorted(users) if name not in excluded and _is_relevant(name, users[name])}


def allowed_variables(environment: Mapping[str, str], custom_names: Iterable[str] = ()) -> dict[str, str]:
    """The variables that a measured program is given; `custom_names` are those in the configuration."""
    custom_names = list(custom_names)
    names = (*LOCATION_VARIABLES, *SET_BY_SNAKEMAKE, *custom_names)  # the user's values, if any, replace Snakemake's
    variables = {name: environment[name] for name in names if name in environment}
    users = _users_variables(environment)
    return variables | relevant_variables(environment) | {name: users[name] for name in custom_names if name in users}


def variables_record(environment: Mapping[str, str], custom_names: Iterable[str]) -> dict:
    """The variables of a program, as its result records them: the first fields of a RecordedEnvironment."""
    salt, users = secrets.token_hex(16), _users_variables(environment)
    names = _digested_names(custom_names)
    digests = {name: _digest(salt, users[name]) if name in users else None for name in names}
    return {"values": relevant_variables(environment, names), "salt": salt if names else None, "digests": digests}


def changed_environment(
    recorded: RecordedEnvironment, environment: Mapping[str, str], custom_names: Iterable[str]
) -> str | None:
    """A message on the first variable that would have another value now; or None. Values of custom variables are
    not shown."""
    names = _digested_names(custom_names)
    values = relevant_variables(environment, names)
    for name in sorted(recorded.values.keys() | values.keys()):
        if recorded.values.get(name) != values.get(name):
            then, now = recorded.values.get(name, "unset"), values.get(name, "unset")
            return f"the environment has changed: {name} was {then} and is {now}"
    users = _users_variables(environment)
    for name in names:
        digest = recorded.digests.get(name)
        if digest is None and name in users:
            return f"the environment has changed: {name} was unset and has a value"
        if digest is not None and name not in users:
            return f"the environment has changed: {name} had a value and is unset"
        if digest is not None and not hmac.compare_digest(digest, _digest(recorded.salt or "", users[name])):
            return f"the environment has changed: {name} has another value"
    return None


def _digested_names(custom_names: Iterable[str]) -> list[str]:
    return sorted(set(custom_names) - set(LOCATION_VARIABLES))


def _users_variables(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variables as the user set them, also in a job of Snakemake."""
    if USERS_VARIABLE not in environment:
        return environment
    others = {name: value for name, value in environment.items() if name not in SET_BY_SNAKEMAKE}
    return others | json.loads(environment[USERS_VARIABLE])


def _is_relevant(name: str, value: str) -> bool:
    has_prefix = name.startswith(RELEVANT_PREFIXES) and not name.endswith(PRIVATE_SUFFIXES)
    return (name in RELEVANT_NAMES or has_prefix) and os.sep not in value  # a value with a slash locates a file


def _digest(salt: str, value: str) -> str:
    return hmac.new(salt.encode(), value.encode(errors="surrogateescape"), "sha256").hexdigest()
