"""Pages of the documentation whose figures come out of results files."""
