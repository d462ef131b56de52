"""Names of ranges as PyTorch's profiler can keep them.

Kineto writes the name of a range into its JSON as it is: a quotation mark breaks the whole file, a backslash becomes a
slash, and a name with anything but printable ASCII is written as "unknown".
"""

import re
from urllib.parse import quote, unquote

MARK = "%="  # what an encoded name begins with
KEPT = re.compile(r"""(?!%=)[ !#-\[\]-~]*""")


def encoded(name: str) -> str:
    """The name where Kineto keeps it, else MARK and the name in percent encoding."""
    return name if KEPT.fullmatch(name) else MARK + quote(name, safe=" ", errors="surrogatepass")


def decoded(name: str) -> str:
    """The name that was encoded; every other one as it is. Half a pair of surrogates becomes a replacement mark."""
    return unquote(name.removeprefix(MARK), errors="replace") if name.startswith(MARK) else name
