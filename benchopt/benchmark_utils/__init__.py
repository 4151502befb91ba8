"""What the objective and the plain solvers share."""
