"""Bugs put into the engine on purpose, as changes of its source text while it runs.

The product holds no hook for them: a process without a mutant runs the very code that is shipped.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """In `owner.function`, `old` becomes `new`.

    The owner is a class, a module, or the place where one is found: `engine.loop:Engine`, `engine.loop`.
    """

    owner: Any
    function: str
    old: str
    new: str

    def place(self) -> Any:
        """The class or module that is changed."""
        if not isinstance(self.owner, str):
            return self.owner
        module, _, name = self.owner.partition(":")
        found = importlib.import_module(module)
        return getattr(found, name) if name else found

    @contextmanager
    def made(self) -> Iterator[None]:
        """The change holds inside the `with`; LookupError when its place in the source is gone."""
        owner = self.place()
        whole = vars(owner)[self.function]
        plain = getattr(whole, "fget", None) or getattr(whole, "__func__", whole)  # property, class method
        source = textwrap.dedent(inspect.getsource(plain))
        if source.count(self.old) != 1:
            raise LookupError(f"{self.old!r} stands {source.count(self.old)} times in {self.function}")
        mutated, name = source.replace(self.old, self.new), f"<{self.function} with {self.new!r}>"
        linecache.cache[name] = (
            len(mutated),
            None,
            mutated.splitlines(keepends=True),
            name,
        )  # the next change reads it
        code = compile(mutated, name, "exec", flags=__future__.annotations.compiler_flag)
        names = sys.modules[plain.__module__].__dict__
        found: dict[str, Any] = {}
        exec(code, names, found)
        mutant = found[self.function]
        _put(owner, self.function, whole, mutant)
        try:
            yield
        finally:
            _put(owner, self.function, mutant, whole)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug: a few changes that belong together."""

    name: str
    changes: tuple[Change, ...]

    @contextmanager
    def alive(self) -> Iterator[None]:
        """The bug is there inside the `with`; LookupError when a place of it in the source is gone."""
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change.made())
            yield


def _put(owner: Any, name: str, old: Any, new: Any) -> None:
    """Set it at its owner, and wherever a module has imported it by name."""
    setattr(owner, name, new)
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(name) is old:
            setattr(module, name, new)
