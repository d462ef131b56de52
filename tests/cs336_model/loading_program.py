"""A program whose code is noted: imports the modules that it is given, runs a line, and prints what it has loaded.

python -m cs336_model.program tests.cs336_model.loading_program TARGETS LINE MODULE...
"""

import importlib
import json
import sys

from cs336_model.program.loaded_distributions import loaded_distributions
from cs336_model.program.loading import code_loaded, count_packages

targets, line, *modules = sys.argv[1:]
count_packages(targets.split())
for module in modules:
    importlib.import_module(module)
exec(line)
print(json.dumps([code_loaded(), loaded_distributions(targets.split())]))
