"""The documentation site builds strictly: every link leads somewhere, and everything public has a docstring."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer

from selfguide.cli.main import app
from selfguide.methods import registry

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'selfguide[docs]'")
pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install 'selfguide[docs]'")

ROOT = Path(__file__).parents[2]


def build(site: Path, config: Path = ROOT / "mkdocs.yml") -> subprocess.CompletedProcess[str]:
    """Build the site in a process of its own, as ``make docs`` does."""
    words = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(words, cwd=config.parent, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def text_of(page: Path) -> str:
    """The page as a reader sees it, without tags."""
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def commands(command: Any, name: str = "selfguide") -> Iterator[tuple[str, Any]]:
    """Every command and subcommand with its full name."""
    for child, subcommand in getattr(command, "commands", {}).items():
        yield f"{name} {child}", subcommand
        yield from commands(subcommand, f"{name} {child}")


def test_the_architecture_page_shows_the_import_contracts_as_they_are(site: Path) -> None:
    configuration = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    contracts = re.findall(r"^\[\[tool\.importlinter\.contracts\]\]\n(?:(?!\[).*\n?)+", configuration, re.MULTILINE)
    shown = text_of(site / "architecture.html")
    assert any('type = "layers"' in contract for contract in contracts)
    for contract in contracts:
        assert contract.strip() in shown


def test_every_command_and_option_is_in_the_reference(site: Path) -> None:
    shown = text_of(site / "reference" / "command-line.html")
    found = dict(commands(typer.main.get_command(app)))
    assert {"selfguide train", "selfguide compare"} <= set(found)
    for name, command in found.items():
        assert name in shown
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert all(flag in shown for flag in parameter.opts), (name, parameter.opts)


def test_figures_and_results_files_are_part_of_the_site(site: Path) -> None:
    page = (site / "results" / "studies.html").read_text(encoding="utf-8")
    for link in re.findall(r'(?:src|href)="(\.\./repository/[^"#]+)"', page):
        assert (site / "results" / link).is_file(), link
    assert "layers/figures/layers.png" in page
    assert (site / "repository" / "CHANGELOG.html").is_file()


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for name in ("index.html", "architecture.html", "reference/index.html"):
        page = (site / name).read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]+src="(https?://[^"]+)"', page) == []
        assert re.findall(r'<link[^>]+rel="stylesheet"[^>]+href="(https?://[^"]+)"', page) == []


def test_a_broken_link_and_a_missing_docstring_fail_the_build(tmp_path: Path) -> None:
    """A small site with the real hooks: one link to nowhere, and one public object without a docstring."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "src" / "selfguide").mkdir(parents=True)
    (tmp_path / "src" / "selfguide" / "__init__.py").write_text(
        '"""A package."""\n\n__all__ = ["shown", "hidden"]\n\ndef shown(): ...\n\ndef hidden():\n    """Do it."""\n',
        "utf-8",
    )
    hooks = (ROOT / "docs" / "hooks.py").read_text(encoding="utf-8")
    hooks = re.sub(r"^ALWAYS = .*$", "ALWAYS = ()", hooks, flags=re.MULTILINE)
    hooks = re.sub(r"^PUBLIC = .*$", 'PUBLIC = ("selfguide",)', hooks, flags=re.MULTILINE)
    (tmp_path / "docs" / "hooks.py").write_text(hooks, encoding="utf-8")
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[gone](gone.md)\n\n::: selfguide.shown\n", encoding="utf-8")
    (tmp_path / "mkdocs.yml").write_text(
        "site_name: small\nstrict: true\nhooks: [docs/hooks.py]\nexclude_docs: hooks.py\n"
        "plugins: [{mkdocstrings: {handlers: {python: {paths: [src]}}}}]\n",
        encoding="utf-8",
    )
    done = build(tmp_path / "site", tmp_path / "mkdocs.yml")
    assert done.returncode != 0
    assert "'gone.md'" in done.stderr
    assert "index.md: selfguide.shown has no docstring" in done.stderr
    assert "selfguide.hidden is public, but no page documents it" in done.stderr


def test_options_in_the_pages_exist() -> None:
    """Every option of a ``selfguide`` command in a code block, and every option named in a line of text."""
    elsewhere = {"--help", "--plan", "--rehearse", "--collect", "--preset"}  # all but the first are of experiments/
    known = elsewhere | {
        flag
        for _, command in commands(typer.main.get_command(app))
        for parameter in command.params
        for flag in (*parameter.opts, *parameter.secondary_opts)
    }
    for info in registry.builtin_methods():
        names = [item.name.replace("_", "-") for item in fields(registry.method_class(info.name).Options)]
        known |= {f"--{prefix}{name}" for name in names for prefix in ("", "no-")}
    block = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        text = page.read_text(encoding="utf-8")
        spans = [
            span for span in re.findall(r"`([^`\n]+)`", block.sub("", text)) if span.startswith(("--", "selfguide "))
        ]
        code = "\n".join(block.findall(text)).replace("\\\n", " ")
        spans += re.findall(r"^selfguide .*?(?=\s#|$)", code, re.MULTILINE)
        unknown = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", span)} - known
        assert not unknown, (page, unknown)


def test_every_method_has_its_entry_in_the_list_of_methods() -> None:
    listed = (ROOT / "docs" / "methods" / "index.md").read_text(encoding="utf-8")
    assert [info.name for info in registry.builtin_methods() if f"`{info.name}`" not in listed] == []


def test_source_files_named_in_the_pages_exist() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        spans = re.findall(r"`((?:[\w-]+/)+[\w.]+\.py)`", page.read_text(encoding="utf-8"))
        places = (ROOT, ROOT / "src", ROOT / "src" / "selfguide")
        missing = {span for span in spans if not any((place / span).is_file() for place in places)}
        assert not {span for span in missing if not span.startswith("benchmarks/")}, page  # of the history


def test_modules_named_in_the_pages_exist() -> None:
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"python -m (experiments[\w.]*)", text):
            place = ROOT / name.replace(".", "/")
            assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file(), (page, name)
