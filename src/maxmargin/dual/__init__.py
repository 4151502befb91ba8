"""Steps, sweeps and certificates of the dual problem."""
