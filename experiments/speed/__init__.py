"""How fast training and encoding are beside a plain loop and sentence-transformers, measured as ratios of one run."""
