"""Runs one graded program inside the sandbox: `python -I -S inside.py VERDICT`, a program of its own.

Reads two lines of JSON from its standard input and answers on the file descriptor VERDICT.

    in   {"source", "limits"}              the program and what it may use
    out  started                           from here on its time runs
    out  ready                             the program has been run once, as a module
    in   {"tests", "entry", "token"}       only now are the tests, and the token of a pass, in this process
    out  {"state", "note", "token"?}       pass, fail or syntax

What the program changed is not trusted: tests use names and modules as they were before it ran.  It is no
wall against a program written to beat this very file, whose process it shares; the wall is the sandbox.
"""

from __future__ import annotations

import builtins
import cmath
import collections
import copy
import functools
import itertools
import json
import math
import operator
import os
import random
import re
import resource
import string
import sys
import threading
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

_MODULES: Final = (
    builtins,
    cmath,
    collections,
    copy,
    functools,
    itertools,
    math,
    operator,
    random,
    re,
    string,
    typing,
)
_NAME: Final = "<program>"
_MOST_VALUES: Final = 100_000
# How a test asks a value what it is: a class of the program that answers here itself could answer anything.
_ASKED: Final = (
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__instancecheck__"),
    *("__sub__", "__rsub__", "__abs__", "__bool__", "__contains__"),
)


def main(verdict: int) -> None:
    """Run what comes on the standard input and leave the process; never returns."""
    control = os.fdopen(os.dup(0), "rb")  # the program must not find it as its standard input
    os.close(0)
    write, leave = os.write, os._exit
    first = json.loads(control.readline())
    _limit(first["limits"])
    write(verdict, b"started\n")
    own = globals()
    before = [(vars(module), dict(vars(module))) for module in _MODULES]  # builtins first
    before.append((own, dict(own)))
    del sys.modules["__main__"]
    namespace: dict[str, Any] = _module().__dict__
    answer = _run(first["source"], namespace)
    if answer is None and len(sys._current_frames()) > 1:
        answer = {"state": "fail", "note": "it leaves threads running"}
    if answer is None:
        _restore(before)
        write(verdict, b"ready\n")
        second = json.loads(control.readline())
        answer = _test(second, namespace, dict(vars(builtins)))
    write(verdict, json.dumps(answer).encode() + b"\n")
    leave(0)


def _limit(limits: Mapping[str, int]) -> None:
    """Take the limits, which nobody inside can lift again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))


def _module() -> types.ModuleType:
    """The module that the program becomes; not the main one, so that its own demonstration does not run."""
    module = types.ModuleType("program")
    sys.modules["program"] = module
    return module


def _run(source: str, namespace: dict[str, Any]) -> dict[str, str] | None:
    """Run the program once; None when it came to its end."""
    try:
        code = compile(source, _NAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return {"state": "syntax", "note": _named(error)}
    return _attempt(lambda: exec(code, namespace))


def _restore(before: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    """Put back what the program changed in modules that tests use, and take off its hooks."""
    for names, kept in before:
        names.update(kept)
    own, kept = before[-1]
    own.clear()  # a name that was added here would hide a builtin
    own.update(kept)
    sys.settrace(None)
    sys.setprofile(None)
    threading.settrace(None)


def _test(
    second: Mapping[str, str], namespace: Mapping[str, Any], pristine: dict[str, Any]
) -> dict[str, str]:
    """Run the tests on the program's names; names of builtins keep their meaning."""
    names = {
        name: value
        for name, value in namespace.items()
        if name == second["entry"]
        or (name not in pristine and not (name.startswith("__") and name.endswith("__")))
    }
    entry = names.get(second["entry"])
    if not callable(entry):
        return {"state": "fail", "note": f"it has no function {second['entry']}"}
    if isinstance(entry, types.FunctionType):
        names[second["entry"]] = _guarded(entry)
    names |= {"__builtins__": pristine, "__name__": "tests"}
    code = compile(second["tests"], "<tests>", "exec", dont_inherit=True)
    failure = _attempt(lambda: exec(code, names))
    return failure or {"state": "pass", "note": "", "token": second["token"]}


def _attempt(action: Callable[[], None]) -> dict[str, str] | None:
    try:
        action()
    except BaseException as error:  # also an exit: it comes before the end of the tests
        return {"state": "fail", "note": _named(error)}
    return None


def _named(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except BaseException:  # its own text can fail too
        return type(error).__name__


def _guarded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose results must not bring their own idea of equality."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        _check_equality(result)
        return result

    return call


def _check_equality(value: object) -> None:
    """Raise AssertionError for a value, or a part of one, that decides itself what it equals.

    One that equals whatever there is (`unittest.mock.ANY` is such) need not be of a class of the program.
    """
    values, seen, stranger = [value], 0, object()
    while values and seen < _MOST_VALUES:
        part = values.pop()
        seen += 1
        own = [getattr(getattr(type(part), name, None), "__code__", None) for name in _ASKED]
        if any(code is not None and code.co_filename == _NAME for code in own):
            raise AssertionError(f"a {type(part).__name__} decides itself what it equals")
        if own[0] is not None and part == stranger:
            raise AssertionError(f"a {type(part).__name__} equals everything")
        if isinstance(part, dict):
            values += [*dict.keys(part), *dict.values(part)]
        elif isinstance(part, list | tuple | set | frozenset):
            values += part


if __name__ == "__main__":
    main(int(sys.argv[1]))
