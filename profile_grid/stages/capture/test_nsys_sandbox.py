"""What a program under nsys can see of its host."""

import os
import subprocess
import sys

import pytest

from profile_grid.stages.capture.nsys_sandbox import namespace_command, neutral_folder


@pytest.fixture
def in_namespaces():
    """A function that runs a command in the namespaces."""
    if not namespace_command():
        pytest.skip("this system permits no process namespace (unshare --user --pid --mount-proc)")
    return lambda *command: subprocess.run(
        [*namespace_command(), *command], capture_output=True, text=True, check=False
    )


def test_a_program_in_the_namespaces_sees_no_other_process(in_namespaces):
    with subprocess.Popen(["sleep", "30"], env={"SECRET": "canary"}) as other:
        output = in_namespaces("sh", "-c", "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
        other.kill()
    assert "cmdline" in output  # its own
    assert "canary" not in output


def test_a_program_in_the_namespaces_does_not_know_the_hosts_name(in_namespaces):
    assert in_namespaces("uname", "-n").stdout == "localhost\n"


def test_shared_memory_left_by_an_earlier_process_of_the_same_number_is_not_met(in_namespaces):
    assert in_namespaces("sh", "-c", "touch /dev/shm/left; ls /dev/shm").stdout == "left\n"
    assert in_namespaces("ls", "/dev/shm").stdout == ""


def test_a_program_in_the_namespaces_ends_with_its_own_status(in_namespaces):
    assert in_namespaces("sh", "-c", "exit 7").returncode == 7


def test_where_namespaces_are_not_permitted_nothing_is_put_before_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    namespace_command.cache_clear()
    assert namespace_command() == ()
    namespace_command.cache_clear()


def test_paths_in_the_environment_become_links_that_tell_nothing(tmp_path, monkeypatch):
    secret = tmp_path / "canary"
    (secret / "bin").mkdir(parents=True)
    (secret / "data.txt").write_text("seven")
    monkeypatch.chdir(secret)
    with neutral_folder() as folder:
        variables = folder.environment({"PATH": f"{secret}/bin:/usr/bin", "PYTHONPATH": "bin", "LANG": "C.UTF-8"})
        assert "canary" not in repr(variables) + str(folder.path)
        assert (folder.path / "data.txt").read_text() == "seven"  # a relative path means what it means here
        first, second = variables["PATH"].split(os.pathsep)
        assert os.path.samefile(first, secret / "bin")
        assert (second, variables["PYTHONPATH"], variables["LANG"]) == ("/usr/bin", first, "C.UTF-8")
    assert not folder.path.exists()
    assert (secret / "data.txt").exists()


def test_the_interpreter_reached_by_its_link_has_the_same_packages(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with neutral_folder() as folder:
        command = folder.command([sys.executable, "-c", "import jsonschema; print(jsonschema.__file__)"])
        module_file = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        import jsonschema

        assert os.path.samefile(module_file, jsonschema.__file__)
