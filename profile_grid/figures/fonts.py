"""vl-convert with the fonts that it ships and none of the system's, so that a figure is the same on every machine.

vl-convert reads fonts once per process, before its first use, and a font of the system hides a shipped one of the same
name. Therefore all modules that draw import vl_convert from here. On macOS and Windows, which do not use fontconfig,
the fonts of the system are still read.
"""

import os
import tempfile
from pathlib import Path

import vl_convert

__all__ = ["vl_convert"]

CONFIGURATION = "FONTCONFIG_FILE"


def _read_shipped_fonts() -> None:
    before = os.environ.get(CONFIGURATION)
    with tempfile.TemporaryDirectory() as empty:
        file = Path(empty) / "fonts.conf"
        file.write_text(f"<fontconfig><dir>{empty}</dir></fontconfig>")
        os.environ[CONFIGURATION] = str(file)
        try:
            vl_convert.register_font_directory(empty)  # reads all fonts
        finally:
            os.environ.pop(CONFIGURATION)
            if before is not None:
                os.environ[CONFIGURATION] = before


_read_shipped_fonts()
