"""A label for each node of a graph."""
