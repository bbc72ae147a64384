"""Pre-training of the package's small BERT, ``mini``, by masked language modelling (``python -m experiments.pretraining``)."""
