"""Dual points, and the steps and sweeps that improve them."""
