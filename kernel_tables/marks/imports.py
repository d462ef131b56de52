"""Calls a function as soon as a module has been imported. Imports nothing heavy itself."""

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, call: Callable[[ModuleType], object]) -> None:
    """Calls `call` with the module as soon as it has been imported; immediately if it already was."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, call))


class _Finder:
    """Finds one module by the other finders, and adds the call to its loader."""

    def __init__(self, name: str, call: Callable[[ModuleType], object]) -> None:
        self.name, self.call = name, call
        self.is_searching = False  # true inside find_spec, which asks all finders, this one included

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name or self.is_searching:
            return None
        self.is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self.is_searching = False
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                spec.loader.exec_module = execute
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self.call(module)

            spec.loader.exec_module = execute_and_call
        return spec
