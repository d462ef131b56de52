"""What runs inside the processes of a recorded program, whose PyTorch it uses. It imports no more than it must: the
program pays for it."""
