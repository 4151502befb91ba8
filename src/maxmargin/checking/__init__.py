"""Whether a problem keeps its contract."""
