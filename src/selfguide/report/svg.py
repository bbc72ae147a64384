"""Turn an SVG file of matplotlib into an element that can be part of a page.

The page's content policy allows no ``style`` attributes, its identifiers must be unique, and its colours follow the
reader's theme. So styles become presentation attributes, colours become variables of the style sheet, identifiers that
nothing refers to are dropped and the others start with the figure's key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from markupsafe import Markup

_DROPPED = {"metadata", "style", "clipPath"}
_HREF = "{http://www.w3.org/1999/xlink}href"
_KEPT = ("d", "x", "y", "transform", "width", "height", "points")
_PRESENTATION = ("fill", "stroke", "opacity", "text-anchor", "font-size", "font-weight")
_WIDE = 500
"""A figure of more points across scrolls on a small screen rather than becoming too small to read."""
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}")


@dataclass(frozen=True)
class Mark:
    """Tooltip and exact values of a mark in a figure."""

    text: str
    """The tooltip."""
    data: Mapping[str, str]
    """Attributes with the exact numbers."""


def inline_svg(
    source: str, key: str, title: str, description: str, marks: Mapping[str, Mark], theme: Mapping[str, str]
) -> Markup:
    """Make an SVG file part of a page.

    Args:
        source: The file's content, as matplotlib writes it.
        key: What the element's identifiers start with.
        title: The figure's name, for readers who do not see it.
        description: What it shows, for the same readers.
        marks: By the identifier of a group of the file, what the page says of it.
        theme: Variables of the style sheet by the colour that they replace.

    Returns:
        The ``svg`` element.
    """
    root = ElementTree.fromstring(source)
    made = Element("svg", {"class": "chart", "role": "img", "aria-labelledby": f"{key}-title {key}-text"})
    made.set("viewBox", root.get("viewBox", ""))
    if float(made.attrib["viewBox"].split()[2]) > _WIDE:
        made.set("data-wide", "")
    SubElement(made, "title", {"id": f"{key}-title"}).text = title
    SubElement(made, "desc", {"id": f"{key}-text"}).text = description
    _Converter(key, marks, theme).convert_children(root, made)
    return Markup(ElementTree.tostring(made, encoding="unicode"))


@dataclass
class _Converter:
    key: str
    marks: Mapping[str, Mark]
    theme: Mapping[str, str]

    def __post_init__(self) -> None:
        self.references: dict[str, str] = {}

    def convert_children(self, source: Element, target: Element) -> None:
        for child in source:
            self._convert(child, target)

    def _convert(self, source: Element, target: Element) -> None:
        tag = source.tag.partition("}")[2]
        if tag in _DROPPED:
            return
        attributes = self._attributes(source, tag)
        mark = self.marks.get(source.get("id", ""))
        if mark is not None:
            attributes |= mark.data
        if tag == "g" and not attributes:  # matplotlib wraps every artist; an empty group is left out
            self.convert_children(source, target)
            return
        if tag == "defs" and all(child.tag.partition("}")[2] in _DROPPED for child in source):
            return
        made = SubElement(target, tag, attributes)
        made.text = source.text if tag == "text" else None
        if mark is not None:
            SubElement(made, "title").text = mark.text
        self.convert_children(source, made)
        if tag == "g":
            _hoist(made)

    def _attributes(self, source: Element, tag: str) -> dict[str, str]:
        attributes = {name: self._shortened(value) for name in _KEPT if (value := source.get(name)) is not None}
        if attributes.get("transform", "").startswith("rotate(-0 "):
            del attributes["transform"]
        style = dict(part.split(": ", 1) for part in source.get("style", "").split("; ") if ": " in part)
        if "font" in style:  # matplotlib before 3.10: one property, such as "700 10px 'DejaVu Sans'"
            *weight, size = style.pop("font").partition("px")[0].split()
            style |= {"font-size": f"{size}px", **({"font-weight": weight[-1]} if weight else {})}
        for name, value in style.items():
            if name.startswith(_PRESENTATION):
                attributes[name] = f"var(--{self.theme[value]})" if value in self.theme else value
        if _HREF in source.attrib:
            attributes["href"] = f"#{self._reference(source.attrib[_HREF][1:])}"
        if tag == "path" and source.get("id"):  # a marker, which is drawn by reference
            attributes["id"] = self._reference(source.attrib["id"])
        return attributes

    def _reference(self, identifier: str) -> str:
        return self.references.setdefault(identifier, f"{self.key}-{len(self.references)}")

    def _shortened(self, value: str) -> str:
        return _LONG_NUMBER.sub(lambda found: f"{float(found.group()):.2f}", " ".join(value.split()))


def _hoist(group: Element) -> None:
    """Move what all markers of a group have in common to the group."""
    markers = [child for child in group if child.tag == "use"]
    if len(markers) > 1:
        for name in [*markers[0].attrib]:
            if name not in _KEPT and name != "href" and len({marker.get(name) for marker in markers}) == 1:
                group.set(name, markers[0].attrib[name])
                for marker in markers:
                    del marker.attrib[name]
