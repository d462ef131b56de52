"""What the tables, sentences and figures of all questions share."""
