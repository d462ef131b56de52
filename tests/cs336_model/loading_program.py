"""A program whose code is noted: imports the modules that it is given, runs a line, and prints what it has loaded.

python -m cs336_model.program tests.cs336_model.loading_program TARGETS LINE MODULE...
"""

import importlib
import json
import sys

from cs336_model.program.loaded_distributions import loaded_distributions
from cs336_model.program.loading import loaded_code, record_packages

targets, line, *modules = sys.argv[1:]
record_packages(targets.split())
for module in modules:
    importlib.import_module(module)
exec(line)
print(json.dumps([loaded_code(), loaded_distributions(targets.split())]))
