"""Measures one stage of one run and writes the result as JSON.

    python -m cs336_model --spec '{...}' --output FILE --locks DIR [--profiler P] [--capture FILE]

The file `started` beside the result exists while this process has its device: a time limit counts then. The status of
the result is `complete`; `out_of_memory`; `unsupported` if this machine cannot run the variant; `non_finite` if a loss
is no number. A wrong option or a model that cannot be measured as declared prints one line, every other failure a
traceback; both exit with another status than 0 and leave no result.
"""

import argparse
import atexit
import gc
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from cs336_model import locks
from cs336_model.results import STAGES, Result, write_result
from cs336_model.spec import Spec, read_spec

BENCHMARKED = ("timing", "capture", "counters")  # stages of benchmark.py; others have a module of their name


def main(arguments: list[str] | None = None) -> bool:
    """Measures what the command line says. Returns whether the process has nothing to do any more."""
    parser = argparse.ArgumentParser(prog="python -m cs336_model", description=__doc__.partition("\n")[0])
    parser.add_argument("--spec", required=True, help="specification of the run, as JSON (cs336_model/spec.py)")
    parser.add_argument("--output", type=Path, required=True, help="file for the result")
    parser.add_argument("--locks", type=Path, default=locks.LOCKS, help="folder of this host's locks")
    parser.add_argument("--profiler", choices=("none", "nsys", "torch", "ncu"), default="none")
    parser.add_argument("--capture", type=Path, help="file for what --profiler torch or the stage memory records")
    parser.add_argument("--rank-command", type=json.loads, default=[], help="words before the command of each rank")
    parser.add_argument("--rank", type=int, help="set by cs336_model/launch.py, as is --meeting")
    parser.add_argument("--meeting", type=Path, help="folder in which the ranks meet the process that started them")
    options = parser.parse_args(arguments)
    try:
        spec = read_spec(options.spec)
    except ValueError as error:
        raise SystemExit(str(error)) from None
    if spec.gpus > 1 and options.rank is None:
        from cs336_model import launch

        launch.run_ranks(spec, options)
        return False
    return run(spec, options)


def run(spec: Spec, options: argparse.Namespace) -> bool:
    """Writes the result of this process: of a run, or of one rank, for which launch.py holds the locks. Returns whether
    the process has nothing to do any more."""
    is_rank = options.rank is not None
    sharing = None if is_rank else locks.shared(options.locks)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(options.output.parent.absolute() / "compiled")  # it is empty
    os.environ.pop("TRITON_CACHE_DIR", None)  # it is below inductor's unless it is set
    gc.disable()  # imports make many objects and no garbage
    from cs336_model import benchmark, device, ranges, variants

    variants.import_late_modules(spec)
    if is_rank:
        from cs336_model import parallel
    module = import_module(f"cs336_model.{'benchmark' if spec.stage in BENCHMARKED else spec.stage}")
    options.close_recording = None
    if options.profiler in ("nsys", "torch"):
        ranges.emit_ranges(options.profiler)
    if options.profiler == "nsys":  # it starts to record, while this process waits for a second and has no device yet
        import nvtx

        options.close_recording = partial(nvtx.end_range, nvtx.start_range(ranges.RECORDING, domain=ranges.DOMAIN))
    gc.enable()
    gc.freeze()
    # otherwise, Python searches all objects of torch for garbage when it ends, which takes a third of a second
    atexit.register(gc.freeze)
    if is_rank:
        place, subject_class = parallel.RankPlace(spec, options), parallel.SUBJECTS[spec.parallel]
    else:
        sharing.release()
        started = options.output.with_name("started")
        place, subject_class = device.Place(spec.device, options.locks, started), benchmark.Subject
    given = (place, options, subject_class) if spec.stage in (*BENCHMARKED, "memory") else (place.device,)
    result = measure_or_explain(spec, place, partial(module.measure, spec, *given))
    result.machine = device.describe_machine(place.device)
    is_last = not is_rank and options.profiler == "none"  # nothing but the writing of the result is left to do
    # ncu keeps the GPU's counters until this process has ended; a rank that failed cannot meet the others any more
    if is_last:
        place.leave()
    elif options.profiler != "ncu" and (not is_rank or result.status == "complete"):
        place.share()
    write_result(result, options.output)
    if is_rank and result.status != "complete":
        os._exit(1)  # to leave the group of ranks would wait for the others
    return is_last


def measure_or_explain(spec: Spec, place: Any, measure: Callable[[], Result]) -> Result:
    """The result of `measure`, or one that says why this machine cannot have it."""
    from cs336_model import benchmark, device, loading, variants

    stage = STAGES[spec.stage]
    try:
        place.open()
        return measure()
    except variants.Unsupported as error:
        return stage(status="unsupported", reason=str(error))
    except loading.UnusableModel as error:
        raise SystemExit(f"{spec.run}: {error}") from None
    except Exception as error:
        if not device.is_out_of_memory(error):
            raise
        memory = device.describe_out_of_memory(error, benchmark.Progress.during)
        asked = f"; {memory.requested_bytes / 2**30:.2f} GiB more were asked for" if memory.requested_bytes else ""
        print(f"{spec.run}: {error}", file=sys.stderr, flush=True)
        reason = f"no memory was left during {memory.during}{asked}"
        return stage(status="out_of_memory", reason=reason, out_of_memory=memory)


if __name__ == "__main__" and main():  # at once, so that no end of this process runs beside another's steps
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
