"""A multilingual encoder at full size: zero-shot from English, each language's own text, and all of them."""
