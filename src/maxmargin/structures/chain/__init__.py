"""A label for each position of a sequence."""
