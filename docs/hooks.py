"""Hooks of the documentation site (``hooks:`` in ``mkdocs.yml``).

* Pages link to files of the repository (results, figures, source) by their path on disk. The hooks add every linked file
  to the site below ``repository/`` and rewrite the links. A link to a file that does not exist stays as it is, and the
  strict build fails on it.
* ``<!-- command line -->`` becomes the reference of all commands, read from the command line itself.
* ``<!-- import contract -->`` becomes the contract of ``pyproject.toml``, verbatim.
* Every object that a page documents with ``::: name`` must have a docstring, and so must its public members; every public name
  of the packages in ``PUBLIC`` must be on some page.
* References to code in docstrings, written for every reader of the source, become links.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

log = get_plugin_logger("selfguide")

DOCS = Path(__file__).parent
ROOT = DOCS.parent
ELSEWHERE = "repository"
"""Folder of the site for files of the repository that are not in ``docs/``."""
ALWAYS = ("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "CITATION.cff")
"""Files that the navigation names, whether or not a page links to them."""

PUBLIC = ("selfguide", "selfguide.losses", "selfguide.methods", "selfguide.data")
"""Packages whose ``__all__`` is the public API."""

_LINK = re.compile(r"(?<=\]\()([^()\s]+)(?=\))")
_API = re.compile(r"^::: +([\w.]+)", re.MULTILINE)
_ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):<code>(~?)([\w.]+)</code>")


# -- files of the repository -------------------------------------------------------------------------------------------


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the repository's files that pages link to, and those that they link to in turn."""
    waiting = [ROOT / name for name in ALWAYS]
    documented: set[str] = set()
    for file in files.documentation_pages():
        waiting += _targets(DOCS / file.src_uri)
        documented |= set(_API.findall((DOCS / file.src_uri).read_text(encoding="utf-8")))
    for missing in sorted(_undocumented_exports(documented)):
        log.warning(f"{missing} is public, but no page documents it")
    seen: set[Path] = set()
    while waiting:
        target = waiting.pop()
        if target in seen or target.is_relative_to(DOCS):
            continue
        seen.add(target)
        if target.is_dir():
            children = sorted(child for child in target.iterdir() if child.is_file())
            files.append(File.generated(config, _site_path(target), content=_listing(target, children)))
            waiting += children
        else:
            files.append(File.generated(config, _site_path(target), abs_src_path=str(target)))
            if target.suffix == ".md":
                waiting += _targets(target)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave ``docs/``, fill in the generated parts and check the docstrings that the page shows."""
    source = _repository_path(page.file.src_uri)
    if not source.is_dir():
        markdown = _LINK.sub(lambda found: _site_link(found[1], source, page.file.src_uri), markdown)
    for marker, generate in {"command line": command_line, "import contract": import_contract}.items():
        if f"<!-- {marker} -->" in markdown:
            markdown = markdown.replace(f"<!-- {marker} -->", generate())
    for name in _API.findall(markdown):
        for missing in undocumented(name):
            log.warning(f"{page.file.src_uri}: {missing} has no docstring")
    return markdown


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the roles of docstrings (``:class:`~package.Name` ``) into links where the object is documented."""
    if page.file.src_uri.startswith("reference/"):
        html = _ROLE.sub(_reference, html).replace("::</p>", ":</p>")
    return html


def _reference(found: re.Match[str]) -> str:
    short, name = found.groups()
    title = name.rpartition(".")[2] if short else name
    return f'<autoref optional identifier="{name}"><code>{title}</code></autoref>'


def _targets(page: Path) -> list[Path]:
    """Return the existing files and folders that a page links to."""
    links = _LINK.findall(page.read_text(encoding="utf-8"))
    return [target for link in links if (target := _resolve(link, page)) is not None]


def _resolve(link: str, page: Path) -> Path | None:
    """Return the file of the repository that a relative link leads to, or ``None``."""
    path = link.partition("#")[0]
    if not path or "://" in path or path.startswith(("/", "mailto:")):
        return None
    target = Path(os.path.normpath(page.parent / path))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def _site_link(link: str, page: Path, uri: str) -> str:
    target = _resolve(link, page)
    if target is None or (target.is_relative_to(DOCS) and page.is_relative_to(DOCS)):
        return link
    _, mark, anchor = link.partition("#")
    return os.path.relpath(_site_path(target), os.path.dirname(uri) or ".") + mark + anchor


def _site_path(target: Path) -> str:
    if target.is_relative_to(DOCS):
        return target.relative_to(DOCS).as_posix()
    path = f"{ELSEWHERE}/{target.relative_to(ROOT).as_posix()}"
    return f"{path}/index.md" if target.is_dir() else path


def _repository_path(uri: str) -> Path:
    """Return the file that a page of the site was made of: the inverse of ``_site_path``."""
    if not uri.startswith(f"{ELSEWHERE}/"):
        return DOCS / uri
    path = ROOT / uri.removeprefix(f"{ELSEWHERE}/")
    return path if path.exists() else path.parent


def _listing(folder: Path, children: list[Path]) -> str:
    name = folder.relative_to(ROOT).as_posix()
    return "\n".join([f"# {name}", "", *(f"- [{child.name}]({child.name})" for child in children), ""])


# -- generated parts ---------------------------------------------------------------------------------------------------


def import_contract() -> str:
    """Return the import-linter contracts of ``pyproject.toml`` as a code block."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r"^\[tool\.importlinter\].*?(?=^\[(?!\[?tool\.importlinter)|\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        log.warning("pyproject.toml has no [tool.importlinter]")
        return ""
    return f'```toml title="pyproject.toml"\n{found[0].strip()}\n```'


def command_line() -> str:
    """Return a section for every command: its help, usage, arguments and options."""
    import typer

    from selfguide.cli.main import app

    return "\n".join(_command_section("selfguide", typer.main.get_command(app), level=1))


def _command_section(name: str, command: Any, level: int) -> Iterator[str]:
    if level > 1:
        visible = [item for item in command.params if not getattr(item, "hidden", False)]
        arguments = [item for item in visible if item.param_type_name == "argument"]
        options = [item for item in visible if item.param_type_name == "option"]
        yield f"{'#' * level} `{name}`\n"
        yield _help_text(command.help or "")
        words = [f"[{item.name.upper()}]" if not item.required else item.name.upper() for item in arguments]
        words = [f"{word}..." if item.nargs == -1 else word for word, item in zip(words, arguments, strict=True)]
        yield f'```text title="Usage"\n{" ".join([name, *words, *(["[OPTIONS]"] if options else [])])}\n```\n'
        if arguments:
            yield from _table("argument", [(f"`{item.name.upper()}`", "", item.help) for item in arguments])
        for panel in dict.fromkeys(item.rich_help_panel for item in options):
            if panel:
                yield f"*{panel}*\n"
            rows = [(_flags(item), _default(item), item.help) for item in options if item.rich_help_panel == panel]
            yield from _table("option", rows)
    for child, subcommand in getattr(command, "commands", {}).items():
        if not subcommand.hidden:
            yield from _command_section(f"{name} {child}", subcommand, level + 1)


def _help_text(text: str) -> str:
    """Return a command's help as Markdown, its indented examples joined into one code block."""
    prose, _, examples = text.partition("**Examples**")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    block = ["```bash", *lines, "```", ""] if lines else []
    return "\n".join([prose.strip(), "", *block])


def _flags(option: Any) -> str:
    # A flag that is off by default has a negative form that nobody needs to read about.
    names = [*option.opts, *(option.secondary_opts if option.default else [])]
    return ", ".join(f"`{name}`" for name in names)


def _default(option: Any) -> str:
    empty = option.default is None or option.default is False or option.default == ()
    return "" if empty or callable(option.default) else f"`{option.default}`".replace("`True`", "on")


def _table(head: str, rows: list[tuple[str, str, str | None]]) -> Iterator[str]:
    yield f"| {head} | default | meaning |\n|---|---|---|"
    for name, default, meaning in rows:
        cells = (name, default, " ".join((meaning or "").split()))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


# -- docstrings --------------------------------------------------------------------------------------------------------

_packages: dict[str, Any] = {}


def _package() -> Any:
    """Return the package as griffe reads it from the source: nothing is imported."""
    if not _packages:
        _packages["selfguide"] = griffe.load("selfguide", search_paths=[ROOT / "src"], resolve_aliases=True)
    return _packages["selfguide"]


def _find(name: str) -> Any:
    """Return an object of the package by its full name, or ``None``."""
    try:
        return _package() if name == "selfguide" else _package()[name.removeprefix("selfguide.")]
    except KeyError:
        return None


def _undocumented_exports(documented: set[str]) -> set[str]:
    """Return the public names that are not among those documented, under whatever path."""
    known = {found.canonical_path for name in documented if (found := _find(name)) is not None}
    names = {f"{name}.{item}" for name in PUBLIC for item in _find(name).exports or ()}
    return {name for name in names if _find(name).canonical_path not in known}


def undocumented(name: str) -> Iterator[str]:
    """Yield the full names of an object and its public members that have no docstring.

    Args:
        name: Full name of a module, class, function or attribute, as a page documents it.
    """
    found = _find(name)
    if found is None:  # mkdocstrings reports it
        return
    if not found.has_docstring:
        yield name
    if found.is_class:
        for member in found.members.values():
            if member.is_function and not member.name.startswith("_") and not member.has_docstring:
                yield f"{name}.{member.name}"
