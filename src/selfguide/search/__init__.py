"""An index of sentences on disk: by meaning, by words, or both, with conditions on the columns of the input.

==============  ========================================================================================================
``build``       :func:`~selfguide.search.build.build_index`: text → index; adding and removing rows
``index``       :class:`~selfguide.search.index.Index` and :func:`~selfguide.search.index.open_index`: queries
``filters``     the conditions that users write, and the SQL they become
``columns``     the types of the input's columns, and how they are stored
``spool``       the rows of a text on disk, read once, typed and identified by their keys
``store``       the table in LanceDB, and the record that says which of its versions readers see
``duplicates``  near-duplicates: every pair of rows above a percentile
==============  ========================================================================================================

A reader sees one version of the table, the one that ``index.json`` names. A change makes new versions, and becomes visible when
that file is replaced, all at once; what a killed process left is invisible, and the same command continues it.
"""
