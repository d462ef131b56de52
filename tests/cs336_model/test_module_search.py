"""Where a module would be found, compared with Python's own import in a new process."""

import json
import subprocess
import sys

from cs336_model.program.module_search import Location, ModuleSearch

FILES = ("pack/__init__.py", "pack/module.py", "pack/spread/inner.py", "pack/spread/deep/last.py", "apart/one.py")
NAMES = ("pack", "pack.module", "pack.spread", "pack.spread.inner", "pack.spread.deep.last", "apart", "apart.one")
MISSING = ("pack.spread.missing", "pack.missing", "pack.module.below", "missing.below")


def test_modules_of_packages_without_init_are_found_in_packages_that_are_not_imported(tmp_path):
    for file in FILES:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    program = (
        "import importlib, json, sys; sys.path.insert(0, sys.argv[1]);"
        "print(json.dumps({name: [m.__file__, [*getattr(m, '__path__', [])]]"
        f" for name in {NAMES} for m in [importlib.import_module(name)]}}))"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    search = ModuleSearch([str(tmp_path)])
    for name, (file, folders) in json.loads(done.stdout).items():
        assert search.find(name) == Location(file, tuple(folders) or None)
    assert not any(search.find(name) for name in MISSING)
