"""A set of labels for each example."""
