"""The folder of this project, and its packages on Python's path: included first, before anything of it is imported.

ROOT    the project's folder. Of a module named by github(...) or gitlab(...), Snakemake fetches only the rules. These need
        their programs, too, so ROOT is then a checkout of the same commit in .snakemake
config  config.yaml of the project, changed by the settings of the command line, or of the user of this module
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError
from snakemake.utils import update_config


def checkout(repository, ref):
    """A folder with all files of a commit; it is made once."""
    commit = repository.commit(ref).hexsha
    folder = Path(".snakemake", "profile_grid", commit).absolute()
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = tempfile.mkdtemp(dir=folder.parent)
        repository.clone(partial, no_checkout=True).git.checkout(commit, quiet=True)
        try:
            os.rename(partial, folder)
        except OSError:  # another Snakemake was first
            shutil.rmtree(partial)
    return folder


def root_of(source):
    """The project's folder. `source` is the folder of this file: a path, or a place in a hosted repository."""
    is_hosted = hasattr(source, "hosted_repo")
    base = checkout(source.hosted_repo.repo, source.ref) if is_hosted else Path()
    return Path(os.path.abspath(base / source.path)).parents[1]


ROOT = root_of(workflow.current_basedir)
if set("{}").intersection(str(ROOT)):
    raise WorkflowError(f"the project's path holds a brace, which Snakemake takes for a wildcard; move it: {ROOT}")
if workflow.modifier.modify_path("results") != "results":
    raise WorkflowError("the results are in results/ of the working folder: leave prefix out, and use --directory")
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))


configfile: f"{ROOT}/config.yaml"


if workflow.modifier.skip_configfile:  # a module that is given its settings
    module_config, config = config, load_configfile(ROOT / "config.yaml")
    update_config(config, module_config)
