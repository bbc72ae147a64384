"""Questions about the methods, each answered by one command: :mod:`registry` lists them, :mod:`base` says how one is added,
:mod:`run` runs one, and of what it writes, :mod:`files` makes tables and :mod:`figures` pictures.

Importing this imports nothing else.
"""
