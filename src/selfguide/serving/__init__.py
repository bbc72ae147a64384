"""``selfguide serve``: sentence vectors over HTTP, in OpenAI's format.

Two kinds of processes. The *front* (:mod:`~selfguide.serving.server`, :mod:`~selfguide.serving.app`) speaks HTTP, checks
requests and counts who may wait; it holds no model and imports no torch. Each encoder has a *worker*
(:mod:`~selfguide.serving.worker`), which tokenises, forms batches by tokens (:mod:`~selfguide.serving.batching`) and computes.
Between them run length-prefixed frames over a socket pair (:mod:`~selfguide.serving.frames`), on the front's side behind
:class:`~selfguide.serving.encoder_process.EncoderProcess`.
"""
