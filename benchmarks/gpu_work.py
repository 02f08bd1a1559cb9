"""Small trainings for `gpu_sharing.py`, each in its own process; needs PyTorch and a GPU.

python benchmarks/gpu_work.py mlp 4000
python benchmarks/gpu_work.py hog 2000 --gib 12
python benchmarks/gpu_work.py calibrate 2
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import torch

_PROBE_S = 1.0
_SHARE = 10  # how often a training looks at the clock while it is calibrated


def main() -> int:
    """Train, or tell how many steps of each training take so many seconds on an idle GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*TRAININGS, "calibrate"])
    parser.add_argument("amount", type=float, help="steps; of calibrate, seconds")
    parser.add_argument("--lr", type=float, default=0.01, help="learning rate")
    parser.add_argument("--gib", type=float, default=0.0, help="memory that is held besides")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.kind == "calibrate":
        speeds = {kind: _steps_per_s(kind) for kind in TRAININGS}
        print(json.dumps({kind: max(1, int(s * args.amount)) for kind, s in speeds.items()}))
        return 0
    held = [torch.empty(2**28, device="cuda") for _ in range(int(args.gib))]
    step = TRAININGS[args.kind](args.lr)
    for _ in range(int(args.amount)):
        step()
    torch.cuda.synchronize()
    print(f"{args.kind}: {args.amount:.0f} steps, {len(held)} GiB held besides")
    return 0


def _steps_per_s(kind: str) -> float:
    step = TRAININGS[kind]()
    for _ in range(_SHARE):
        step()
    torch.cuda.synchronize()
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < _PROBE_S:
        for _ in range(_SHARE):
            step()
        torch.cuda.synchronize()
        steps += _SHARE
    return steps / (time.monotonic() - began)


def _make_step(model: Any, shape: tuple[int, ...], rate: float) -> Any:
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    batch = torch.randn(*shape, device="cuda")
    labels = torch.randint(0, 10, shape[:1], device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch), labels).backward()
        optimizer.step()

    return step


def mlp(rate: float = 0.01) -> Any:
    """Three thin layers: the GPU mostly waits for the CPU."""
    nn = torch.nn
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return _make_step(nn.Sequential(*layers), (256, 784), rate)


def cnn(rate: float = 0.01) -> Any:
    """Six convolutions over small images: the GPU is at work for a good part of the time."""
    nn = torch.nn
    layers: list[Any] = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    for _ in range(5):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)]
    return _make_step(nn.Sequential(*layers), (64, 3, 32, 32), rate)


def saturating(_rate: float = 0.01) -> Any:
    """Products of large matrices: nothing is left for others."""
    left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(left)

    def step() -> None:
        torch.matmul(left, left, out=out)

    return step


TRAININGS = {"mlp": mlp, "cnn": cnn, "saturating": saturating, "hog": mlp}

if __name__ == "__main__":
    sys.exit(main())
