"""How routines are compiled, and the ones that everything else is made of."""
