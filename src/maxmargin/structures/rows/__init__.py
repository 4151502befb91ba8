"""What structures over feature rows have in common."""
