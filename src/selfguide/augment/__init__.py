"""Augmentations: ways to make a second version of a sentence for a contrastive or denoising loss.

* :mod:`~selfguide.augment.embeddings`: token shuffling, token and feature cutoff, dropout at the embedding layer (ConSERT).
* :mod:`~selfguide.augment.words`: masked, deleted, reordered or replaced words (Mirror-BERT, CLEAR, TSDAE).
* :mod:`~selfguide.augment.dropout`: the rate of the encoder's own dropout (SimCSE).
* :mod:`~selfguide.augment.back_translation`: the sentence translated to another language and back.
* :mod:`~selfguide.augment.encoding`: several versions of a batch through the encoder in one forward pass.

Everything random is drawn from torch's global generator on the CPU, so that a seed gives the same draws on every device and
a resumed run draws what an uninterrupted one would have drawn.
"""
