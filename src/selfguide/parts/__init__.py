"""What methods are made of: losses with weights, augmentations, labelled pairs, translations, word vectors.

No method's file imports another's; what two of them need lives here.
"""
