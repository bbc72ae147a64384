"""One self-contained HTML page about a run, a comparison or a folder of scores: :mod:`folders` finds out which, the modules
``*_page`` say what stands on it, :mod:`markup`, :mod:`charts` and :mod:`page` how it looks, :mod:`collect` measures a run.

Importing this imports nothing else.
"""
