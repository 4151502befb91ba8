"""Readers of file formats, and sources of examples that need not fit in memory."""

from maxmargin.core.registry import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__)
