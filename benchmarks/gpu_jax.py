"""Trains three dense layers with JAX, for `gpu_default.py`; needs a GPU."""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp


def main() -> None:
    """Train, and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--steps", type=int, default=3000)
    args = parser.parse_args()
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
    print(f"lr={args.lr:g}: loss {float(loss):.6f}")


if __name__ == "__main__":
    main()
