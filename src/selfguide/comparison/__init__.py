"""Comparisons: methods × seeds × tasks.

:mod:`specs` parses what is compared, :mod:`worker` runs one cell of the table, :mod:`runner` all of them, and :mod:`summary`
and :mod:`tables` turn the cells' files into tables. Importing this imports nothing else.
"""
