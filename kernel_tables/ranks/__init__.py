"""The processes of one run: the activities of each, and the cost of communication between them."""
