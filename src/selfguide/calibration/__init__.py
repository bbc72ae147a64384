"""Statistics of text and of vectors: token frequencies, moments, whitening maps, and re-fitting them later."""
