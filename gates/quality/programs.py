"""From a reply to a program: which part of the text is the code, and what must stand around it.

Owns the choice among fenced blocks and the joining with the prompt.  Knows no set, and runs nothing.
"""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

LONGEST: Final = 100_000  # characters of a program; what is longer is no answer

_FENCE: Final = re.compile(r"[ \t]*(?P<fence>`{3,}|~{3,})(?P<label>[^`]*)")
_FUTURE: Final = re.compile(r"^from __future__ import .*$", re.MULTILINE)
_CODE_WORDS: Final = re.compile(r"^\s*(?:def|class|import|from|return|lambda|for|while|if)\b", re.MULTILINE)
_BUILTINS: Final = frozenset(vars(builtins))


@dataclass(frozen=True, slots=True)
class Built:
    """A program that defines the entry point, or why there is none."""

    state: Literal["built", "syntax", "no_code"]
    source: str = ""


def build(text: str, *, entry: str, prompt: str = "") -> Built:
    """The program in a reply: the last candidate that parses and defines `entry`, with all that it needs.

    `prompt` is the start of a program that ends in the head of `entry`; its imports and helpers always stand
    in front, and a candidate that is only a body goes behind it.
    """
    candidates = blocks(text)
    for start in range(len(candidates) - 1, -1, -1):
        if _defines(candidates[start], entry):
            needed = _with_needed(candidates[:start], candidates[start])
            return Built("built", _joined([_prelude(prompt, entry), *needed]))
    for candidate in reversed(candidates):
        if prompt and (whole := _as_body(prompt, candidate, entry)):
            return Built("built", whole)
    unparsed = [found for found in candidates if tree(found) is None]
    return Built("syntax" if any(_CODE_WORDS.search(found) for found in unparsed) else "no_code")


def blocks(text: str) -> list[str]:
    """The candidates of a reply: its fenced blocks in their order, or the text itself where there is none.

    A label ends with its line; the last fence may be left open.  A lone closing fence fences nothing.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: list[str] = []
    outside: list[str] = []
    inside: list[str] | None = None
    opened = ""
    for line in lines:
        fence = _FENCE.fullmatch(line)
        if inside is None:
            if fence:
                opened, inside = fence["fence"], []
            else:
                outside.append(line)
        elif fence and fence["fence"].startswith(opened) and not fence["label"].strip():
            found.append("\n".join(inside))
            inside = None
        else:
            inside.append(line)
    if inside:
        found.append("\n".join(inside))
    fenced = [_dedented(block) for block in found if block.strip()]
    if fenced and any(tree(block) for block in fenced):
        return fenced
    bare = "\n".join(outside).strip("\n")
    return fenced + ([bare] if bare.strip() else [])


def tree(source: str) -> ast.Module | None:
    """The syntax tree of a program; None where it does not parse, whatever it does to the parser."""
    if len(source) > LONGEST:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def defined(module: ast.Module) -> frozenset[str]:
    """The names that a module binds at its top level, branches of `if` and `try` included."""
    names: set[str] = set()
    open_nodes: list[ast.stmt] = list(module.body)
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While):
            parts = [node, *getattr(node, "handlers", ())]
            children = [child for part in parts for child in ast.iter_child_nodes(part)]
            open_nodes += [child for child in children if isinstance(child, ast.stmt)]
        else:
            names |= {
                child.id
                for child in ast.walk(node)
                if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store)
            }
    return frozenset(names)


def _defines(source: str, entry: str) -> bool:
    module = tree(source)
    return module is not None and entry in defined(module)


def _needs(source: str) -> frozenset[str]:
    """The names that a program uses and neither binds nor finds among the builtins."""
    module = tree(source)
    if module is None:
        return frozenset()
    used = {
        node.id for node in ast.walk(module) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    return frozenset(used - defined(module) - _BUILTINS)


def _with_needed(earlier: Sequence[str], chosen: str) -> list[str]:
    """The chosen block behind those earlier ones that bind names which it, or they, need."""
    taken, needs = [chosen], _needs(chosen)
    for block in reversed(earlier):
        module = tree(block)
        if module is not None and defined(module) & needs:
            taken.insert(0, block)
            needs = (needs - defined(module)) | _needs(block)
    return taken


def _prelude(prompt: str, entry: str) -> str:
    """The imports and helpers of a prompt: all of it but the head of the entry point."""
    module = tree(prompt) if prompt else None
    if module is None:
        return ""
    lines = prompt.split("\n")
    for node in reversed(module.body):
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines).strip("\n")


def _as_body(prompt: str, candidate: str, entry: str) -> str | None:
    """The prompt with the candidate as the body of its last function; None where that is no function."""
    body = candidate.strip("\n")
    for indented in (body, textwrap.indent(body, "    ")):
        whole = f"{prompt.rstrip()}\n{indented}\n"
        module = tree(whole)
        last = module.body[-1] if module is not None and module.body else None
        if isinstance(last, ast.FunctionDef) and last.name == entry and _returns(last):
            return whole
    return None


def _returns(function: ast.FunctionDef) -> bool:
    """Whether a function gives something back itself; a head with prose behind it does not."""
    nodes: list[ast.AST] = list(function.body)
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            nodes += ast.iter_child_nodes(node)
    return False


def _joined(parts: Sequence[str]) -> str:
    """The parts one below the other, imports from the future in front of all."""
    whole = "\n\n".join(part for part in parts if part)
    future = _FUTURE.findall(whole)
    return "\n".join([*future, _FUTURE.sub("", whole)]) if future else whole


def _dedented(block: str) -> str:
    """A block that stood in a list, without that indent; a body keeps its own, for it goes behind a head."""
    if tree(block) is not None:
        return block
    moved = textwrap.dedent(block)
    module = tree(moved)
    return moved if module is not None and any(isinstance(n, ast.FunctionDef) for n in module.body) else block
