"""The variables that a measured program is given, and what a result keeps of them."""

import json

import pytest

from profile_grid.freshness.environment import (
    RecordedEnvironment,
    allowed_variables,
    changed_environment,
    record_users_values,
    relevant_variables,
    variables_record,
)

HOST = {"planners_python": True, "gpus": []}


def changed(then, now, custom=()):
    """Why a result that was measured with some variables is not what would be measured with others."""
    return changed_environment(RecordedEnvironment(**variables_record(then, custom), **HOST), now, custom)


@pytest.mark.parametrize(
    "name",
    ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "KMP_AFFINITY", "NCCL_NVLS_ENABLE", "NCCL_ALGO", "CUBLAS_WORKSPACE_CONFIG",
     "CUDNN_LOGLEVEL_DBG", "TORCH_COMPILE_DISABLE", "PYTORCH_CUDA_ALLOC_CONF", "TORCHINDUCTOR_MAX_AUTOTUNE",
     "CUDA_LAUNCH_BLOCKING"],
)  # fmt: skip
def test_a_value_that_may_change_a_measurement_is_handed_on_and_compared(name):
    assert allowed_variables({name: "1"}) == {name: "1"}
    assert changed({}, {name: "1"}) == f"the environment has changed: {name} was unset and is 1"
    assert changed({name: "1"}, {name: "2"}) == f"the environment has changed: {name} was 1 and is 2"
    assert changed({name: "1"}, {}) == f"the environment has changed: {name} was 1 and is unset"
    assert changed({name: "1"}, {name: "1"}) is None


@pytest.mark.parametrize(
    "name",
    ["PATH", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR", "CUDA_HOME", "CUDA_VISIBLE_DEVICES",
     "NVIDIA_VISIBLE_DEVICES"],
)  # fmt: skip
def test_what_locates_files_or_chooses_a_gpu_is_handed_on_and_not_kept(name):
    assert allowed_variables({name: "canary"}) == {name: "canary"}
    assert changed({name: "canary"}, {name: "another"}) is None
    assert changed({name: "canary"}, {name: "another"}, [name]) is None
    assert "canary" not in json.dumps(variables_record({name: "canary"}, [name]))


@pytest.mark.parametrize(
    ("name", "value"),
    [("TORCHINDUCTOR_CACHE_DIR", "x"), ("TORCH_HOME", "x"), ("NCCL_TOPO_FILE", "x"), ("NCCL_SOCKET_IFNAME", "x"),
     ("NCCL_COMM_ID", "x"), ("TORCH_TRACE", "/home/anna/traces"), ("HOME", "x"), ("HF_TOKEN", "x"), ("FOO", "x")],
)  # fmt: skip
def test_the_rest_is_neither_handed_on_nor_kept(name, value):
    assert allowed_variables({name: value}) == {}
    assert relevant_variables({name: value}) == {}


def test_a_custom_variable_is_compared_and_its_value_is_nowhere():
    record = variables_record({"FOO": "canary"}, ["FOO"])
    assert "canary" not in json.dumps(record)
    assert variables_record({"FOO": "canary"}, ["FOO"])["digests"] != record["digests"], "the salt is another each time"
    assert changed({"FOO": "canary"}, {"FOO": "canary"}, ["FOO"]) is None
    assert changed({"FOO": "canary"}, {"FOO": "heron"}, ["FOO"]) == "the environment has changed: FOO has another value"
    assert changed({"FOO": "canary"}, {}, ["FOO"]) == "the environment has changed: FOO had a value and is unset"
    assert changed({}, {"FOO": "heron"}, ["FOO"]) == "the environment has changed: FOO was unset and has a value"
    assert changed({}, {}, ["FOO"]) is None


def test_a_custom_variable_is_hidden_whatever_its_name():
    assert "canary" not in json.dumps(variables_record({"TORCH_SETTING": "canary"}, ["TORCH_SETTING"]))
    assert changed({"OMP_SCHEDULE": "a"}, {"OMP_SCHEDULE": "b"}, ["OMP_SCHEDULE"]).endswith(
        "OMP_SCHEDULE has another value"
    )


def test_what_snakemake_sets_for_a_job_is_not_taken_for_the_users():
    users = {"MKL_NUM_THREADS": "4"}
    record_users_values(users)
    in_job = users | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    assert variables_record(in_job, [])["values"] == {"MKL_NUM_THREADS": "4"}
    assert allowed_variables(in_job) == {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "4"}
    assert changed(in_job, users) is None
    record_users_values(in_job)  # a Snakemake in a job of another
    assert variables_record(in_job, [])["values"] == {"MKL_NUM_THREADS": "4"}


def test_a_custom_variable_that_snakemake_sets_is_the_users_too():
    users = {"OMP_NUM_THREADS": "4"}
    record_users_values(users)
    in_job = users | {"OMP_NUM_THREADS": "1"}
    assert allowed_variables(in_job, ["OMP_NUM_THREADS"]) == {"OMP_NUM_THREADS": "4"}
    assert changed(in_job, users, ["OMP_NUM_THREADS"]) is None
