"""Benchmarks: one module for each claim.

``python -m benchmarks`` runs them all, ``python -m benchmarks.crammer_singer`` one of them. Each
prints a table and writes the same, with every single measurement, to ``results/<claim>.json``.
"""
