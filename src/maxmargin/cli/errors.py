"""Errors of the command line."""


class UsageError(ValueError):
    """Options that cannot be, or do not go together."""
