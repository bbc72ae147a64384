"""Pre-training of the project's own small BERT by masked language modelling (run as ``python -m experiments.pretraining``)."""
