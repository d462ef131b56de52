"""A digest of the code in a Python file: what a comment, a docstring or another layout does not change."""

import ast
import hashlib

DIGITS = 16


def code_digest(content: bytes) -> str:
    """The same on every version of Python; of bytes that are not Python, a digest of the bytes."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return hashlib.sha256(content).hexdigest()[:DIGITS]
    parts: list[str] = []
    _write(tree, parts)
    return hashlib.sha256("".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def _write(node: object, parts: list[str]) -> None:
    if isinstance(node, ast.AST):
        parts.append(type(node).__name__ + "(")
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                value = value[1:] if ast.get_docstring(node, clean=False) is not None else value
            if value is not None and value != [] and name not in ("kind", "type_comment", "type_ignores", "ctx"):
                parts.append(name + "=")
                _write(value, parts)
        parts.append(")")
    elif isinstance(node, list):
        parts.append("[")
        for value in node:
            _write(value, parts)
        parts.append("]")
    else:
        parts.append(repr(node) + ",")
