"""What tests cost, and which are slow.

A budget is the processor time of the tests and of the processes that they start, in units of a loop that is timed
between the tests, so that a slow or busy machine slows both. `pytest` and `pytest -m slow` have one each; a run of some
tests has none.
"""

import resource
import statistics
import time
import tomllib
from pathlib import Path

import pytest


SLOW = (  # they run workflows, record programs, install packages, open a browser, make the example or try many inputs
    "tests/kernel_recorder/test_programs.py",
    "tests/kernel_recorder/test_ranks.py",
    "tests/kernel_tables/test_attribution_property.py",
    "tests/kernel_tables/test_fuzz.py",
    "tests/profile_grid/test_example.py",
    "tests/profile_grid/test_page.py",
    "tests/profile_grid/test_ranks.py",
    "tests/test_installation.py",
    "tests/test_readme.py",
    "tests/workflow/",
)
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


def names_no_tests(config: pytest.Config) -> bool:
    """Whether nobody chose tests by path, word or as those that failed."""
    option = config.option
    chosen = option.keyword, option.deselect, getattr(option, "lf", False), option.ignore
    return config.args_source == pytest.Config.ArgsSource.TESTPATHS and not any(chosen)


def budget_of(config: pytest.Config) -> float | None:
    """The units that this run may take; None for a run of some tests."""
    if config.option.collectonly or not names_no_tests(config):
        return None
    return LIMIT["units"].get(config.option.markexpr)


def pytest_configure(config: pytest.Config) -> None:
    """Leaves slow tests out, unless tests or a mark are named."""
    if names_no_tests(config) and not config.option.markexpr:
        config.option.markexpr = "not slow"


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(SLOW):
            item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    config = session.config
    if hasattr(config, "workeroutput"):
        config.workeroutput |= {"cpu_s": spent_s(), "samples_s": SAMPLES_S}
    elif (units := budget_of(config)) and exitstatus == pytest.ExitCode.OK:
        workers = config.stash.get(WORKERS, None) or [{"cpu_s": spent_s(), "samples_s": SAMPLES_S}]
        cpu_s = sum(worker["cpu_s"] for worker in workers)
        samples_s = [sample for worker in workers for sample in worker["samples_s"]]
        is_within, config.stash[MESSAGE] = verdict(cpu_s, statistics.mean(samples_s), units, LIMIT["margin"])
        if not is_within:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node, error: object) -> None:
    if output := getattr(node, "workeroutput", None):
        node.config.stash.setdefault(WORKERS, []).append(output)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if message := config.stash.get(MESSAGE, None):
        terminalreporter.write_line(message)
