"""From tables to documents: numbers as text, sentences chosen by the data, formats."""
