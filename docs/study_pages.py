"""The page of each study below docs/example-h200, made from its tables by `python -m docs.study_pages FOLDER`.

The pages are not kept in the repository: one takes 2 to 5 MB, since it has all tables and figures in itself.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from docs.examples import STUDIES, page_of
from profile_grid.files import write_text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages are written, one HTML file per study")
    folder = parser.parse_args().folder
    for example in STUDIES:
        path = folder / f"{example.folder.name}.html"
        write_text(path, page_of(example))
        print(path)


if __name__ == "__main__":
    main()
