"""One class for each example."""
