"""The GPT of gpt.py on several GPUs: gradients reduced by DDP, or weights and optimizer state sharded by FSDP.

torchrun --nproc-per-node 2 gpt_ranks.py small|large ddp|fsdp [fails]

With `fails`, one rank raises in its seventh step, which is in the window of a recording.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from gpt import GPT, SIZES, STEPS
from torch import nn

sys.path.append(str(Path(__file__).parents[2] / "tests" / "kernel_recorder" / "programs"))
from digest import digest_of

if __name__ == "__main__":
    config, strategy, fails = SIZES[sys.argv[1]], sys.argv[2], sys.argv[3:] == ["fails"]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        # Neither attention of cuDNN nor flash attention is deterministic: two runs would leave different weights.
        torch.backends.cuda.enable_cudnn_sdp(False)
        torch.use_deterministic_algorithms(True, warn_only=True)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(10)
    model: nn.Module = GPT(config).to(device)
    parameter_count = sum(parameter.numel() for parameter in model.parameters())
    if strategy == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        for block in model.transformer.h:
            fully_shard(block)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(config.vocab_size, (8, config.block_size + 1), device=device)
    for step in range(1, STEPS + 1):
        with torch.autocast(device, dtype=torch.bfloat16):
            _, loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if fails and step == 7 and dist.get_rank() == 1:
            raise ValueError("made up")
    digests: list = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest_of(model, also=loss.item()))
    if dist.get_rank() == 0:
        print("left", *digests)  # the weights that the ranks have left: tests compare these lines
        print(f"{parameter_count} parameters, {4 * parameter_count} bytes in fp32")
    dist.destroy_process_group()
