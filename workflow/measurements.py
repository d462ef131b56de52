"""The reason why the result of a measurement is stale."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from profile_grid.freshness.digests import FileDigests
from profile_grid.results.freshness import stale_reason
from profile_grid.results.results import BadResult, read_origin


def result_reason(
    outputs: Sequence[str], specification: str, sources: str, digest_of: FileDigests
) -> Callable[[], str | None]:
    """A function that returns why a result (the first of `outputs`) and the files next to it are stale, given this
    specification and these sources; None if they are not."""

    def reason() -> str | None:
        result, *files = map(Path, outputs)
        try:
            origin = read_origin(result)
        except BadResult as error:
            return f"a result cannot be used: {error.what}"
        for name in dict.fromkeys([*(path.name for path in files), *origin.files]):
            digest = digest_of(str(result.parent / name))
            if digest is None:
                return f"a file was deleted: {name}"
            if name not in origin.files or digest != origin.files[name].sha256:
                return f"a file is not the one that was measured: {name}"
        return stale_reason(origin, json.loads(specification), sources)

    return reason
