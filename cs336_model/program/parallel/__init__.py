"""A run of several processes, each on a separate GPU: how they start, find each other and reduce their gradients."""
