"""What structures share whose input is one row of features."""
