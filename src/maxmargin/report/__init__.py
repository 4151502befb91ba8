"""What a fit tells its user."""
