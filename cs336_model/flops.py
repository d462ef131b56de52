"""FLOPs and parameters of this project's model, from the shapes alone. Imports no torch.

A matrix product of (m, k) by (k, n) counts 2 m k n FLOPs; the half that the causal mask discards is counted, because it
is computed.
"""

from cs336_model.spec import Spec


def forward_flops(spec: Spec) -> int | None:
    """FLOPs of the matrix products of a forward pass of one process; None if the shape is unknown: another model, or
    arguments that are not these sizes."""
    arguments = spec.constructor_arguments() if spec.is_own_model else {}
    names = ("vocab_size", "context_length", "d_model", "num_layers", "num_heads", "d_ff")
    shape = [arguments.get(name) for name in names]
    if not all(isinstance(size, int) for size in shape):
        return None
    vocab_size, length, d_model, layers, heads, d_ff = shape
    tokens = spec.batch_size // spec.gpus * length
    attention = 2 * tokens * length * (d_model // heads) * heads  # for the scores, and again for the values
    block = 2 * tokens * (4 * d_model**2 + 3 * d_model * d_ff) + 2 * attention
    return layers * block + 2 * tokens * d_model * vocab_size
