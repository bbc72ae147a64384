"""How fast ``selfguide serve`` is, beside a plain FastAPI server."""
