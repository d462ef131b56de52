"""The tables as a person reads them in a terminal: aligned, in its width, with short names and readable units."""
