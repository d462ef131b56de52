"""The measured program in a process whose graphs run as Dynamo made them: what inductor makes of them takes long.

    python -m tests.cs336_model.traced_program SPEC RESULT

A process of its own, since the tests' checks of shapes inside the model would break its graph. The result has one key
more: `opened`, how often a range of each name was opened.
"""

import functools
import json
import sys
from collections import Counter
from pathlib import Path

from torch import nn

from cs336_model import ranges
from cs336_model.program import benchmark


def main(spec: str, result: Path) -> None:
    opened = Counter()
    nn.Module.compile = functools.partialmethod(nn.Module.compile, backend="eager")
    ranges.emit_ranges = lambda emitter: None
    ranges._open_span = lambda name: opened.update([name]) or ranges._NO_RANGE
    benchmark.Comparison = lambda *_: None  # its eager reference opens ranges of its own
    benchmark.main(["--spec", spec, "--output", str(result)])
    result.write_text(json.dumps(json.loads(result.read_text()) | {"opened": opened}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
