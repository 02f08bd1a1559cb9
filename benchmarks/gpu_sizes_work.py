"""One short training on a GPU whose sizes are parameters, for `gpu_sizes.py`; needs PyTorch and a GPU."""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

_LABELS = 64


def main() -> None:
    """Train for some steps, hold the memory for a while, and print the peak of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["transformer", "cnn", "mlp"])
    parser.add_argument("--bs", type=int, default=16)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=0.6, help="that it trains at least")
    args = parser.parse_args()
    torch.manual_seed(0)
    model, batch = MODELS[args.kind](args)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    began, step = time.monotonic(), 0
    while step < args.steps or time.monotonic() - began < args.seconds:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        step += 1
    print(f"{args.kind}: {torch.cuda.max_memory_reserved() / 2**30:.2f} GiB by PyTorch's allocator")


def transformer(args: argparse.Namespace) -> tuple[Any, Any]:
    """Encoder layers over sequences: the memory follows batch, length, width and number of layers."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(
        args.width, nhead=4, dim_feedforward=4 * args.width, dropout=0.0, batch_first=True
    )
    model = nn.TransformerEncoder(layer, args.layers, enable_nested_tensor=False).cuda()
    return model, torch.randn(args.bs, args.length, args.width, device="cuda")


def cnn(args: argparse.Namespace) -> tuple[Any, Any]:
    """Convolutions over images: the memory follows the batch and the square of the side."""
    nn = torch.nn
    blocks: list[Any] = [nn.Conv2d(3, args.width, 3, padding=1)]
    for _ in range(args.layers):
        blocks += [nn.ReLU(), nn.Conv2d(args.width, args.width, 3, padding=1)]
    model = nn.Sequential(*blocks).cuda()
    return model, torch.randn(args.bs, 3, args.side, args.side, device="cuda")


def mlp(args: argparse.Namespace) -> tuple[Any, Any]:
    """Square layers: the memory follows the batch and the square of the width."""
    nn = torch.nn
    layers: list[Any] = []
    for _ in range(args.layers):
        layers += [nn.Linear(args.width, args.width), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(args.width, _LABELS)).cuda()
    return model, torch.randn(args.bs, args.width, device="cuda")


MODELS = {"transformer": transformer, "cnn": cnn, "mlp": mlp}

if __name__ == "__main__":
    main()
