"""A folder per question: its tables, sentences, template, figures and tests."""
