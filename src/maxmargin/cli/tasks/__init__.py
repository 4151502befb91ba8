"""Kinds of files, and what the command line does with them."""
