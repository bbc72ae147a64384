"""Public functions say what they return, which ruff's D rules do not ask for."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "selfguide"
# A summary that begins with one of these is about the result itself; "See" refers to the overridden method.
_SAYS_IT = ("Return", "Yield", "See ")
_SECTIONS = ("Returns:", "Yields:")


def _functions(node: ast.AST, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ast.FunctionDef]]:
    """Yield the functions of modules and classes, not those inside functions."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.FunctionDef):
            yield (*path, inner.name), inner
        elif isinstance(inner, ast.ClassDef):
            yield from _functions(inner, (*path, inner.name))
        elif not isinstance(inner, ast.AsyncFunctionDef):
            yield from _functions(inner, path)


def _is_silent(function: ast.FunctionDef) -> bool:
    """Whether a function returns something that its docstring does not mention; a property's docstring is its value's, and
    an overload's stands with the function."""
    result = "None" if function.returns is None else ast.unparse(function.returns)
    properties = {ast.unparse(decorator) for decorator in function.decorator_list} & {"property", "cached_property"}
    overload = "overload" in {ast.unparse(decorator) for decorator in function.decorator_list}
    if result in ("None", "NoReturn", "Never") or properties or overload:
        return False
    text = ast.get_docstring(function) or ""
    return not text.startswith(_SAYS_IT) and not any(section in text for section in _SECTIONS)


def silent_functions(source: str) -> list[str]:
    public = ((names, found) for names, found in _functions(ast.parse(source)) if not any(n[0] == "_" for n in names))
    return [".".join(names) for names, found in public if _is_silent(found)]


def test_a_silent_function_is_found() -> None:
    source = (
        'class A:\n    def f(self) -> int:\n        """Count."""\n    def g(self) -> int:\n        """Return it."""\n'
    )
    assert silent_functions(source) == ["A.f"]


def test_public_functions_say_what_they_return() -> None:
    silent = {str(path.relative_to(SOURCE)): silent_functions(path.read_text("utf-8")) for path in SOURCE.rglob("*.py")}
    assert {path: names for path, names in silent.items() if names} == {}
