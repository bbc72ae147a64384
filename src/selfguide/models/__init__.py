"""Models: from a name to a sentence encoder, and what is known about it.

* :mod:`~selfguide.models.encoders`: load an encoder, change its pooling, find and freeze its layer 0;
* :mod:`~selfguide.models.families`: the architectures and what each can do;
* :mod:`~selfguide.models.layers`: hidden states, layer numbers and poolings over tokens;
* :mod:`~selfguide.models.folders`, :mod:`selfguide.models.modules`: modules that sentence-transformers does not have, and how
  folders with them are loaded safely;
* :mod:`~selfguide.models.word_vectors`: word vectors from files.
"""
