"""How weights are found."""
