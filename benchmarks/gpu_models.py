"""Trainings with other people's libraries for `gpu_default.py`; each needs a GPU.

python benchmarks/gpu_models.py lm --lr 0.001 --bs 16
python benchmarks/gpu_models.py jax --lr 0.001
"""

from __future__ import annotations

import sys

if sys.argv[1:2] == ["jax"]:
    import jax
else:
    import torch
    import transformers

import argparse
from typing import Any


def main() -> int:
    """Train, and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=["lm", "jax"])
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--bs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    loss = train_jax(args) if args.kind == "jax" else train_lm(args)
    print(f"{args.kind} lr={args.lr:g} bs={args.bs}: loss {loss:.6f}")
    return 0


def train_lm(args: Any) -> float:
    """Train a small GPT-2 on random tokens."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=6, n_embd=384, n_head=6, n_positions=256, vocab_size=8192
    )
    model = transformers.GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    tokens = torch.randint(0, 8192, (args.bs, 256), device="cuda")
    loss = torch.zeros(())
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
    return float(loss.item())


def train_jax(args: Any) -> float:
    """Train three dense layers with gradients of jax."""
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.PRNGKey(0), 4)
    sizes = [(784, 512), (512, 512), (512, 10)]
    weights = [
        jax.random.normal(key, size) * 0.05 for key, size in zip(keys[:3], sizes, strict=True)
    ]
    batch = jax.random.normal(keys[3], (256, 784))

    def loss_of(weights: list[Any]) -> Any:
        hidden = batch
        for weight in weights:
            hidden = jnp.tanh(hidden @ weight)
        return jnp.mean((hidden - 0.5) ** 2)

    def step(weights: list[Any]) -> tuple[list[Any], Any]:
        loss, slopes = jax.value_and_grad(loss_of)(weights)
        return [
            weight - args.lr * slope for weight, slope in zip(weights, slopes, strict=True)
        ], loss

    compiled = jax.jit(step)
    loss: Any = 0.0
    for _ in range(args.steps):
        weights, loss = compiled(weights)
    return float(loss)


if __name__ == "__main__":
    sys.exit(main())
