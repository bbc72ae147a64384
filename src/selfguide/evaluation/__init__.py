"""Evaluation: a task is data plus a metric, and gives a score with its protocol spelt out.

:mod:`~selfguide.evaluation.tasks` says what tasks there are, :mod:`~selfguide.evaluation.data` finds their files,
:mod:`~selfguide.evaluation.sts` and :mod:`~selfguide.evaluation.transfer` score them, and
:func:`selfguide.evaluate` does it all for one encoder.
"""
