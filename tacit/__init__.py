"""Launch private keyboard language models."""

from importlib.metadata import version

__version__ = version("tacit")
