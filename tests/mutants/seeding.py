"""Seeded bugs by name: a file, a function in it, and an expression or statements there, whatever lines they are on.

Code is compared as a syntax tree, so neither layout nor comments nor the place of a function in its file matter.
"""

import ast
import re
from collections.abc import Iterator, Sequence

Node = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def count(source: str, function: str, original: str, replacement: str) -> int:
    """Number of places in a function that hold the original; -1 where there is no such function.

    Args:
      function: dotted, as in ``Registry.crown``; empty for the whole module.
      original, replacement: two expressions, or else statements.
    """
    scope = _scope(ast.parse(source), function)
    return -1 if scope is None else sum(1 for _ in _places(scope, _parsed(original, replacement)[0]))


def seeded(source: str, function: str, original: str, replacement: str) -> str:
    """The source with the bug in place of the original, which must be there once; comments are lost."""
    tree = ast.parse(source)
    scope = _scope(tree, function)
    assert scope is not None, function
    wanted, bug = _parsed(original, replacement)
    ((parent, field, index, length),) = _places(scope, wanted)
    if index is None:
        setattr(parent, field, bug)
    else:
        getattr(parent, field)[index : index + length] = bug if isinstance(bug, list) else [bug]
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def _scope(tree: ast.Module, function: str) -> Node | None:
    scope: Node | None = tree
    for name in function.split(".") if function else ():
        inside = ast.walk(scope) if scope else ()
        scope = next((node for node in inside if isinstance(node, _NAMED) and node.name == name), None)
    return scope


def _parsed(*texts: str) -> list[ast.expr] | list[list[ast.stmt]]:
    """Expressions where all texts are, else statements of each."""
    try:
        return [ast.parse(text, mode="eval").body for text in texts]
    except SyntaxError:
        # What leaves a function stands in one.
        within = ("async def holder():\n" + "".join(f"    {line}\n" for line in text.splitlines()) for text in texts)
        return [ast.parse(text).body[0].body for text in within]  # type: ignore[attr-defined]


def _places(scope: Node, wanted: ast.expr | list[ast.stmt]) -> Iterator[tuple[ast.AST, str, int | None, int]]:
    """Place of the original: its parent's field and, in a list, index and length."""
    if isinstance(wanted, list):
        yield from _statements(scope, [ast.dump(node) for node in wanted])
        return
    kind, expression = type(wanted), _loaded(wanted)
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            for index, node in enumerate(value) if isinstance(value, list) else ((None, value),):
                if type(node) is kind and _loaded(node) == expression:
                    yield parent, field, index, 1


def _statements(scope: Node, wanted: Sequence[str]) -> Iterator[tuple[ast.AST, str, int | None, int]]:
    for parent in ast.walk(scope):
        for field, value in ast.iter_fields(parent):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                dumped = [ast.dump(node) for node in value]
                for index in range(len(value) - len(wanted) + 1):
                    if dumped[index : index + len(wanted)] == wanted:
                        yield parent, field, index, len(wanted)


def _loaded(node: ast.expr) -> str:
    """The expression in words, also where it is assigned to as one that is read."""
    return re.sub(r"ctx=(?:Store|Del)\(\)", "ctx=Load()", ast.dump(node))
