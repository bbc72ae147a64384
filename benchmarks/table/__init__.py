"""The main table: every method on one encoder and one text, beside the figures of the papers.

python -m benchmarks.table.prepare      gathers the inputs in one folder, and packs it for another machine
python -m benchmarks.table.rates        chooses learning rates by STS-B dev, one seed each
python -m benchmarks.table.main_table   runs the rows, resumable
python -m benchmarks.table.page         writes docs/results/main-table.md from the results
"""
