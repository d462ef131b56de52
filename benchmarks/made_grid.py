"""Configurations of any size, in which every dimension of a run takes several values. Imports nothing heavy: the memory
of whoever starts a process counts into the peak of that process."""

from __future__ import annotations

import yaml

from benchmarks.harness import ROOT

SHAPE = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
SIZES = {60: (5, 4, 1, 1), 600: (10, 5, 2, 2), 6000: (25, 20, 2, 2)}  # models, context lengths, precisions, batch sizes


def made_config(runs: int) -> dict:
    """This project's configuration with a grid of so many runs, of models that are all the same, in every mode."""
    models, contexts, precisions, batches = SIZES[runs]
    names = [f"model{number}" for number in range(models)]
    product = {
        "models": names,
        "context_lengths": [16 * (number + 1) for number in range(contexts)],
        "modes": ["forward", "forward_backward", "train_step"],
        "precisions": ["fp32", "bf16"][:precisions],
        "batch_sizes": [4 * (number + 1) for number in range(batches)],
    }
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config["models"] |= dict.fromkeys(names, SHAPE)
    config["grids"]["benchmark"] = [product]
    return config | {"grid": "benchmark", "counters": {"runs": ""}}  # as large as so many runs, and no larger
