"""The versions of the installed packages with which a job of the analysis makes its outputs."""

from collections.abc import Iterable
from pathlib import Path

from profile_grid.freshness.digests import digest_of_settings
from profile_grid.freshness.imports import imported_packages
from profile_grid.freshness.made import UNKNOWN
from profile_grid.freshness.versions import is_planners_python, present_version

DISTRIBUTIONS = {  # by the name that is imported
    "adbc_driver_sqlite": "adbc-driver-sqlite",
    "altair": "altair",
    "itables": "itables",
    "jinja2": "Jinja2",
    "markdown_it": "markdown-it-py",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "pypandoc": "pypandoc_binary",
    "scipy": "scipy",
    "vl_convert": "vl-convert-python",
}


def digest_of_packages(root: Path, programs: Iterable[str]) -> str:
    """A digest of the versions of the packages that programs below `root` import; UNKNOWN in a Python that is not that
    of the plan, since the plan cannot see its packages."""
    if not is_planners_python():
        return UNKNOWN
    names = imported_packages(root, *programs) & DISTRIBUTIONS.keys()
    return digest_of_settings({name: present_version(DISTRIBUTIONS[name]) for name in names})
