"""The model that is measured: the Transformer, the functions it is made of, and its optimizer."""

from cs336_model.model.transformer import TransformerLM

__all__ = ["TransformerLM"]
