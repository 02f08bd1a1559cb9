"""A training for `gpu_suspend.py` that prints every loss to the last digit; needs PyTorch and a GPU.

python benchmarks/gpu_suspend_work.py 400 --gib 10 --wait 0.05
"""

from __future__ import annotations

import argparse
import os
import sys
import time

_MODEL_WIDTH = 1024


def main() -> int:
    """Train; all memory is used in every step, so that a wrong byte shows in a loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", type=int)
    parser.add_argument("--gib", type=float, default=1.0, help="memory that is held besides")
    parser.add_argument("--wait", type=float, default=0.0, help="seconds after each step")
    args = parser.parse_args()
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    held = torch.randn(int(args.gib * 2**28), device="cuda")
    model = torch.nn.Sequential(
        torch.nn.Linear(_MODEL_WIDTH, _MODEL_WIDTH),
        torch.nn.ReLU(),
        torch.nn.Linear(_MODEL_WIDTH, 1),
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    parts = held.view(-1, _MODEL_WIDTH)
    rows = parts.shape[0]
    for step in range(1, args.steps + 1):
        begin = step * 7919 % max(1, rows - 256)
        batch = parts[begin : begin + 256]
        loss = ((model(batch) - batch.mean(dim=1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}/{args.steps} loss {loss.item()!r}", flush=True)
        time.sleep(args.wait)
    print(f"checksum {held.sum(dtype=torch.float64).item()!r}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
