"""Runs a module like `python -m MODULE ARGUMENTS...`, and records the code that it loads.

python -m cs336_model.program cs336_model.program.benchmark --spec '{...}' --output result.json
"""

import atexit
import gc
import sys

from cs336_model.program.loading import start_code_recorder


def main() -> None:
    """Runs the module of the command line."""
    start_code_recorder()
    # otherwise, Python searches all objects of torch for garbage when it ends, which takes a third of a second
    atexit.register(gc.freeze)
    import runpy  # after the recorder has started, so that its imports are recorded, too

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
