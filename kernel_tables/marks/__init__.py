"""Ranges that a measured process opens around parts of its model, forward and backward.

It runs inside the process that is captured, so it needs only PyTorch (and nvtx, for ranges that nsys records).
`marker` opens parts, `backward` opens them again where autograd differentiates them, `compiled` opens them around the
kernels of compiled graphs:

    marker = Marker(nvtx_emitter())
    follow_backward(marker)
    with marker.part("attention"):
        scores = queries @ keys.mT
    with marker.range("backward"):
        scores.sum().backward()  # its kernels are in `backward > attention`
"""

JOINT = " + "  # in the name of a range, between the parts that one kernel of a compiled graph serves
RECOMPUTATION = "recomputation"  # the range around parts that a checkpoint computes again
