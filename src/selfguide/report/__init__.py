"""Results as tables, figures and one self-contained HTML page.

:mod:`~selfguide.report.folders` finds out what a folder holds, the modules ``*_page`` prepare what its page shows, and
``templates/`` is the HTML. :mod:`~selfguide.report.table` is the one table model with its writers,
:mod:`~selfguide.report.plots` the figures as data, :mod:`~selfguide.report.figures` the one renderer. Importing this package
imports nothing else, and no score is computed here.
"""
