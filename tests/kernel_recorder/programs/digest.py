"""What a program leaves behind: its weights and the state of its random numbers, as one line."""

import hashlib
import os
import random

import torch

random.seed(0)
if torch.cuda.is_available():  # where some sums are made in any order otherwise
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)


def print_digest(*models, also=()):
    print("left", digest_of(*models, also=also))


def digest_of(*models, also=()):
    """A digest of the parameters and buffers of models (of this rank's part), of what else is given, and of both random
    states."""
    digest = hashlib.sha256()
    for model in models:
        for name, tensor in sorted(model.state_dict().items()):
            tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # FSDP2's
            digest.update(name.encode() + tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    if torch.cuda.is_initialized():
        digest.update(torch.cuda.get_rng_state().numpy().tobytes())
    digest.update(torch.get_rng_state().numpy().tobytes() + repr((random.getstate(), also)).encode())
    return digest.hexdigest()
