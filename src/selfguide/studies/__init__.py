"""Questions about the methods, each answered by one command.

:mod:`~selfguide.studies.registry` lists them, :mod:`~selfguide.studies.base` says how to add one, and
:mod:`~selfguide.studies.run` runs one. Importing this package imports nothing else.
"""
