"""Methods × seeds × tasks: :mod:`specs` reads what is to be compared, :mod:`worker` runs one cell of the table, :mod:`runner`
all of them, and :mod:`summary` and :mod:`tables` make of the cells' files what a paper prints.

Importing this imports nothing else.
"""
