"""Calibration: linear maps of embeddings, fitted on statistics of a text, without training.

* :mod:`~selfguide.calibration.frequencies`: token frequencies and the SIF weights that follow from them;
* :mod:`~selfguide.calibration.moments`: mean and covariance of embeddings in one pass;
* :mod:`~selfguide.calibration.linear_maps`: the maps (whitening, removal of directions, joining of parts);
* :mod:`~selfguide.calibration.text_statistics`: mergeable statistics of a text, saved beside an encoder so that text can be
  added later;
* :mod:`~selfguide.calibration.token_statistics`, :mod:`~selfguide.calibration.vocabulary_states`: statistics of a layer's
  tokens, and a general-English prior for small texts;
* :mod:`~selfguide.calibration.two_views`, :mod:`~selfguide.calibration.weight_choice`: an encoder that joins two views of a
  sentence, and the weight of each.
"""
