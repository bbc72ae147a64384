"""Which encoder suits a text, when nobody has graded a pair of it? Candidate scores, and how they are held against grades.

:mod:`sample` draws the sentences that everything is computed on; :mod:`corruptions`, :mod:`retrieval`, :mod:`agreement` and
:mod:`geometry` each hold scores of one encoder, :mod:`consensus` those of a set of encoders; :mod:`scores` names them all.
:mod:`candidates` says which encoders are made, :mod:`looking` scores and grades each of them, :mod:`correlations` makes the
table, and :mod:`validate` is the command that does all three.
"""
