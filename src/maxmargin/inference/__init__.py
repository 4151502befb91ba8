"""Compiled searches for the best outputs, and their marginals."""
