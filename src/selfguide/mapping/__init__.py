"""A map of a text: every sentence a point, near those that an encoder finds similar, in groups with telling words.

Modules:

* :mod:`~selfguide.mapping.layout`: nearest neighbours, and places in the plane;
* :mod:`~selfguide.mapping.clusters`: groups, and their words;
* :mod:`~selfguide.mapping.text_map`: the map as a whole, and its files.
"""
