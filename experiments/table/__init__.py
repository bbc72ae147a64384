"""The main table: every method on one encoder and one text, beside the figures of the papers.

python -m experiments.table.prepare      gathers the inputs in one folder, and packs it for another machine
python -m experiments.table.rates        chooses learning rates by STS-B dev, one seed each
python -m experiments.table.main_table   runs the rows, resumable
python -m experiments.table.page         writes docs/results/main-table.md from the results
"""
