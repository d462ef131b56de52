"""What a run of all tests may cost: the processor time of the tests and of the processes that they start, in units of a
loop that is timed between the tests, so that a slow or busy machine slows both. A run of some has no budget.
"""

import resource
import statistics
import time
import tomllib
from pathlib import Path

import pytest

from tests import forked_python

PATH = "tests/budget.toml"
LIMIT = tomllib.loads(Path(__file__).with_name("budget.toml").read_text("utf-8"))
SAMPLES_S: list[float] = []  # what the loop took in this process, between tests
SAMPLE_EVERY_S = 5.0
WORKERS = pytest.StashKey[list[dict]]()  # what the workers that have ended took
MESSAGE = pytest.StashKey[str]()
_sampled_at = -SAMPLE_EVERY_S


def verdict(cpu_s: float, unit_s: float, units: float, margin: float) -> tuple[bool, str]:
    """Whether this processor time, in units of the loop, is within `units` and the margin; and a line that says so."""
    spent = cpu_s / unit_s
    line = (
        f"the tests took {cpu_s:.0f} s of processor time, {spent:.0f} units; the budget is {units} (tests/budget.toml)"
    )
    if spent <= units * margin:
        return True, line
    over = f"{100 * (spent / units - 1):.0f} % over it"
    return False, f"{line}: {over}. Make the slowest tests above quicker, or raise the budget and say what for"


def loop_s() -> float:
    """Seconds of processor time that the loop takes on this machine now."""
    started = time.process_time()
    words: dict[str, int] = {}
    for number in range(60_000):
        word = str(number * 7919 % 10_007)
        words[word] = words.get(word, 0) + len(word)
    return time.process_time() - started


def pytest_runtest_teardown() -> None:
    global _sampled_at
    if time.monotonic() - _sampled_at >= SAMPLE_EVERY_S:
        SAMPLES_S.append(loop_s())
        _sampled_at = time.monotonic()


def spent_s() -> float:
    """Processor time of this process, and of all those that it started and waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests are run: nobody chose some of them, by path, word, mark or as those that failed."""
    option = config.option
    chosen = option.keyword, option.markexpr, option.deselect, getattr(option, "lf", False), option.ignore
    return not option.collectonly and config.args_source == pytest.Config.ArgsSource.TESTPATHS and not any(chosen)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    forked_python.close()
    if hasattr(config, "workeroutput"):
        config.workeroutput |= {"cpu_s": spent_s(), "samples_s": SAMPLES_S}
    elif is_whole(config) and exitstatus == pytest.ExitCode.OK:
        workers = config.stash.get(WORKERS, None) or [{"cpu_s": spent_s(), "samples_s": SAMPLES_S}]
        cpu_s = sum(worker["cpu_s"] for worker in workers)
        samples_s = [sample for worker in workers for sample in worker["samples_s"]]
        is_within, config.stash[MESSAGE] = verdict(cpu_s, statistics.mean(samples_s), LIMIT["units"], LIMIT["margin"])
        if not is_within:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node, error: object) -> None:
    if output := getattr(node, "workeroutput", None):
        node.config.stash.setdefault(WORKERS, []).append(output)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if message := config.stash.get(MESSAGE, None):
        terminalreporter.write_line(message)
