"""The version of the libraries and of the project around them. Not in __init__.py, on which all results depend."""

__version__ = "0.2.0"
