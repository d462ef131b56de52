"""Runs a module like `python -m MODULE ARGUMENTS...`, and notes the code that it loads.

python -m cs336_model.program cs336_model.program.benchmark --spec '{...}' --output result.json
"""

import atexit
import gc
import sys

from cs336_model.program.loading import keep_account


def main() -> None:
    """Runs the module of the command line."""
    keep_account()
    atexit.register(gc.freeze)  # else Python looks at all objects of torch once more at its end: a third of a second
    import runpy  # afterwards, so that its imports are noted, too

    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
