"""Measurements: each module is a command that prints a table and writes a results file (``python -m experiments.NAME``)."""
