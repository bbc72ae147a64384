"""Measurements of large texts and of several processes; see docs/guides/scale.md."""
