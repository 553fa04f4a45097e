"""Prepares a Python program as `python FILE` and `python -m MODULE` do before they run the program's first
line.
"""
# ruff: noqa: PTH109, PTH118, PTH120, PTH123 - as few imports as a fresh interpreter

from __future__ import annotations

import builtins
import importlib.machinery
import importlib.util
import os
import pkgutil
import runpy
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from convoy_workloads.launcher import fork_exit


class Program:
    """A program that is ready to run. As a context manager it keeps the error with which the program ends.

    The caller must call `run` with `arguments` within the context, so that only the caller's frame is below
    the program's frames.
    """

    def __init__(
        self, run: Callable[..., Any], arguments: tuple[Any, ...], names: tuple[str, ...] = ()
    ) -> None:
        """Store the function that runs the program, and its arguments. `names` lists variables of
        `__main__` to remove after the program has ended, as the interpreter does.
        """
        self.run = run
        self.arguments = arguments
        self._names = names
        self._error: BaseException | None = None

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        """Keep the program's error, so that `end` reports it. Reporting it here would change what hooks of
        the program see, because inside this method the interpreter counts the error as being handled.
        """
        hooks = sys.modules.get("convoy_workloads.runtime.hooks")
        if hooks is not None:
            hooks.finish()
        self._error = error
        return True

    def end(self) -> None:
        """Report the program's error as the interpreter would. Raises SystemExit if the program has called
        `sys.exit` or has failed.
        """
        error, self._error = self._error, None
        self.arguments = ()  # This drops the last reference to `__main__`, so the module is destroyed.
        if isinstance(error, SystemExit):
            raise error
        for name in self._names:
            vars(sys.modules["__main__"]).pop(name, None)
        if error is not None:
            fork_exit.report(error)


def load(kind: str, target: str, arguments: list[str]) -> Program | None:
    """Prepare `sys` and `__main__` for the program. Return None if it cannot be run in this process, so
    that a fresh interpreter must run it.

    `target` is the path of a file, folder or archive. If `kind` is "module", `target` is the name of a
    module.
    """
    if kind == "module":
        sys.argv = ["-m", *arguments]
        _put_first(_working_directory())
        _new_main()
        return Program(_run_module, (target, True))
    sys.argv = [target, *arguments]
    path = _absolute(target)
    if pkgutil.get_importer(path) is not None:  # The path is a folder or an archive.
        sys.path.insert(0, path)
        _new_main()
        return Program(_run_module, ("__main__", False))
    code, loader = _compiled(path) or (None, None)
    if code is None:
        return None
    _put_first(_folder(target))
    main = _new_main()
    main.__file__ = path
    main.__loader__ = loader
    variables = vars(main)
    names = ["__file__"]
    if "__cached__" in vars(_ORIGINAL_MAIN):
        variables["__cached__"] = None
        names.append("__cached__")
    return Program(exec, (code, variables), tuple(names))


_ORIGINAL_MAIN = sys.modules["__main__"]
_run_module: Callable[..., Any] = runpy._run_module_as_main  # type: ignore[attr-defined]


def _new_main() -> types.ModuleType:
    """Return a new module `__main__` like the interpreter's. Pickle, and worker processes that the program
    spawns, look up the program's names in this module.
    """
    main = types.ModuleType("__main__")
    main.__loader__ = importlib.machinery.BuiltinImporter
    if "__annotations__" in vars(_ORIGINAL_MAIN):
        main.__annotations__ = {}
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    return main


def _compiled(path: str) -> tuple[types.CodeType, Any] | None:
    """Return the code and loader of a source file or compiled file; None if the file has no valid code."""
    try:
        with open(path, "rb") as file:
            source = file.read()
        if path.endswith(".pyc") or source[:2] == importlib.util.MAGIC_NUMBER[:2]:
            compiled = importlib.machinery.SourcelessFileLoader("__main__", path)
            code = compiled.get_code("__main__")
            return (code, compiled) if code is not None else None
        with warnings.catch_warnings(record=True) as caught:
            code = compile(source, path, "exec", dont_inherit=True)
    except (
        OSError,
        SyntaxError,
        ValueError,
        ImportError,
        EOFError,
        OverflowError,
        MemoryError,
        RecursionError,
    ):
        return None
    for one in caught:
        warnings.showwarning(one.message, one.category, one.filename, one.lineno)
    return code, importlib.machinery.SourceFileLoader("__main__", path)


def _put_first(folder: str) -> None:
    """Put the program's folder first in `sys.path`, unless `-P` or PYTHONSAFEPATH forbids it."""
    if folder and not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def _absolute(path: str) -> str:
    """Return the absolute path that the interpreter gives to `__file__`. It is not normalized."""
    return os.path.join(_working_directory(), path)


def _folder(path: str) -> str:
    return os.path.dirname(os.path.realpath(path))


def _working_directory() -> str:
    """Return the working directory; an empty text if it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""
