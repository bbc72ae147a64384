"""Headless Chromium, where it is installed."""

from __future__ import annotations

from webdriver import CHROMIUM as BROWSER

__all__ = ["BROWSER", "FLAGS"]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --virtual-time-budget=3000 --enable-logging=stderr --v=0 --dump-dom"
).split()
