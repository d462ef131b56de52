"""What holds for all tests."""

import gc
import os
import signal
import sys

import pytest

# In the background of a shell, pytest ignores Ctrl-C, and the programs that tests interrupt would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# There are as many workers as cores, so further threads of PyTorch would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without bytecode every process that a test starts compiles the whole project again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def pytest_collection_finish() -> None:
    """Keeps the garbage collector from searching what was imported: a twentieth of the time of all tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def locks_of_their_own(tmp_path_factory):
    """Tests have their own locks: they do not wait for measurements of this host, and these do not wait for tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNEL_TABLES_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield
