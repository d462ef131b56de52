"""The version of the libraries and of the project. Not in __init__.py: a new version would make all results stale."""

__version__ = "0.10.0"
