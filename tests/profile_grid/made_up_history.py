"""A history of memory that a person can follow: a model of one weight, one training step, one block."""

from __future__ import annotations

from profile_grid.stages.memory.history import AllocationHistory, history_of

# Every line is one event: what is allocated (+) or freed (-), its bytes, and the range that is open. 100 parameters and
# 200 of optimizer state; the forward pass keeps 30 of softmax and 20 of the head and drops 10; the backward pass makes
# 100 of gradients, and needs 40 and a workspace of 16.
EVENTS = """
+weight 100
+scratch 500
-scratch
+moments 200
+tokens 8
( measure
( step
( forward
( block
( computing softmax
+scores 30 aten::exp model.py:7
+sum 10 aten::sum
-sum
)
)
( head
+logits 20 aten::mm
)
)
( loss
+loss 4
)
( backward
+products 40 aten::mm
+workspace 16
+gradient 100 aten::mm
-products
-scores
)
( optimizer
+root 25
-root
)
-logits
)
)
"""
DTYPES = [
    {"module": "blocks.*.norm", "modules": 1, "parameters": "float32", "output": "bfloat16", "gradients": "float32"},
    {"module": "(loss)", "modules": 1, "parameters": "", "output": "float32", "gradients": ""},
]
HELD = {"weight": "parameters", "gradient": "gradients", "moments": "optimizer state", "tokens": "data", "loss": "data"}


def made_up_record(text: str = EVENTS, held: dict[str, str] = HELD) -> dict:
    """The record that the measured program would write of these events."""
    ranges, opened, allocations, last, times = [], [], [], {}, []
    for line in text.split("\n"):
        if line.startswith("("):
            ranges.append(
                {"name": line[2:], "inside": opened[-1] if opened else None, "opened": len(times), "closed": None}
            )
            opened.append(len(ranges) - 1)
        elif line == ")":
            ranges[opened.pop()]["closed"] = len(times)
        elif line.startswith("-"):
            allocations[last[line[1:]]]["freed"] = len(times)
            times.append(float(len(times)))
        elif line:
            name, size, *made_by = line[1:].split()
            last[name] = len(allocations)
            allocations.append(
                {"bytes": int(size), "made": len(times), "freed": None, "range": opened[-1] if opened else None,
                 "operator": made_by[0] if made_by else None, "line": "".join(made_by[1:]) or None, "name": name}
            )  # fmt: skip
            times.append(float(len(times)))
    for one in allocations:
        one["held"] = held.get(one["name"]) if one["freed"] is None else None
    columns = ("bytes", "made", "freed", "range", "operator", "line", "held")
    counters = dict.fromkeys(("allocated_peak", "reserved_peak", "driver_used")) | {"requested_peak": 600}
    return {
        "format": 1, "time_us": times, "counters": counters, "cannot": ["what NCCL takes", "no snapshot"],
        "unmet": None, "dtypes": DTYPES,
        "allocations": {name: [one[name] for one in allocations] for name in columns},
        "ranges": {name: [one[name] for one in ranges] for name in ("name", "inside", "opened", "closed")},
    }  # fmt: skip


def made_up_history(text: str = EVENTS) -> AllocationHistory:
    """The same, read."""
    return history_of(made_up_record(text))
