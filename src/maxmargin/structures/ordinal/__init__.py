"""Classes in an order."""
