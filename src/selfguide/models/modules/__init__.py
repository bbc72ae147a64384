"""Modules that sentence-transformers does not have: the normalising flow and WK pooling.

Folders that hold one of them are loaded by :func:`selfguide.load` (:mod:`selfguide.models.folders`). The dotted names of the
classes are written to ``modules.json``, so moving a class needs an entry in that loader.
"""
