"""Every allocation of a process: recorded from before the model is made, and written without addresses or paths."""
