"""Names of ranges as PyTorch's profiler can keep them.

Kineto writes the name of a range into its JSON as it is: a quotation mark breaks the whole file, a backslash becomes a
slash, and a name with anything but printable ASCII is written as "unknown".
"""

import re
from urllib.parse import quote, unquote

MARK = "%="  # prefix of an encoded name
UNCHANGED = re.compile(r"""(?!%=)[ !#-\[\]-~]*""")  # printable ASCII but quotation mark and backslash, without MARK


def encoded(name: str) -> str:
    """The name if Kineto keeps it unchanged, else MARK and the name in percent encoding."""
    return name if UNCHANGED.fullmatch(name) else MARK + quote(name, safe=" ", errors="surrogatepass")


def decoded(name: str) -> str:
    """The decoded name; names that are not encoded are unchanged. A lone surrogate becomes replacement marks."""
    return unquote(name.removeprefix(MARK), errors="replace") if name.startswith(MARK) else name
