"""Methods: ``fit(encoder, text) -> SentenceTransformer``, behind one registry.

Three families: *pooling* (nothing is trained), *calibration* (a map fitted on embeddings) and *tuning* (the encoder is
fine-tuned). One file a method; :mod:`selfguide.methods.registry` lists them without importing any.
"""
