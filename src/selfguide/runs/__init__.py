"""Runs: from a configuration to a saved encoder, with its record and model card; and fitting a saved calibration again.

This room stands above ``methods/``, because a run takes a method, and ``training/`` below it, because a method trains.
"""
