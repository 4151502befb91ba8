"""The order of the documents of a query."""
