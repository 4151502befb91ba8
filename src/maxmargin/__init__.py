"""Max-margin structured prediction, with a duality-gap certificate on every fit."""

from maxmargin.core.registry import lazy_names

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_names(__name__)
__all__ += ["__version__"]
