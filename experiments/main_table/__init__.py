"""The main table: every method on one encoder and one text, beside the figures of the papers.

``prepare`` gathers the inputs, ``rates`` chooses learning rates by STS-B dev, ``run`` runs the rows, and ``page`` writes
docs/results/main-table.md; each is a command, ``python -m experiments.main_table.NAME``.
"""
