"""(e) What softmax costs in attention."""
