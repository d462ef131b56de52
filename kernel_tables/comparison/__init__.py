"""Two captures side by side: on what they were made, and what a step of each launched."""
