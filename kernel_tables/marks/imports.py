"""Calls a function as soon as a module has been imported."""

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, call: Callable[[ModuleType], None]) -> None:
    """Calls `call` with the module as soon as it has been imported; immediately if it already was."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Finder(name, call))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module by the other finders, and replaces its loader by a `_Loader`."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self.name, self.call = name, call
        self._is_searching = False  # true inside find_spec, which asks all finders, this one included

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != self.name or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._is_searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(self, spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Restores the module's own loader, loads the module by it, and then calls the finder's `call`."""

    def __init__(self, finder: _Finder, loader: Any) -> None:
        self._finder, self._loader = finder, loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
            self._finder.call(module)
