"""One protocol for every method that is tuned: as published, and tuned by dev with the same number of trials.

``space`` draws the trials from what each method declares, ``blocks`` has the rows, ``run`` and ``supervised`` are commands,
``collect`` writes the results files.
"""
