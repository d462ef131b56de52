"""A run of several processes, each on a GPU of its own: how they start, find each other and reduce their gradients."""
