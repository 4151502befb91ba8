"""Classes in a tree."""
