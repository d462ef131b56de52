"""Programs that benchmarks run: training scripts without code for recording, their reference, and a slower softmax."""
