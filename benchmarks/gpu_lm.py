"""Trains a small GPT-2 of `transformers` on random tokens, for `gpu_default.py`; needs a GPU."""

from __future__ import annotations

import argparse
import time

import torch
import transformers


def main() -> None:
    """Train, and print the last loss."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--bs", type=int, default=16)
    parser.add_argument("--steps", type=int, default=120)
    args = parser.parse_args()
    began = time.time()
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=6, n_embd=384, n_head=6, n_positions=256, vocab_size=8192
    )
    model = transformers.GPT2LMHeadModel(config).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    tokens = torch.randint(0, 8192, (args.bs, 256), device="cuda")
    loss = torch.zeros(())
    torch.cuda.synchronize()
    built = time.time()
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
    print(f"lr={args.lr:g} bs={args.bs}: loss {loss.item():.6f}")
    gib = torch.cuda.max_memory_reserved() / 2**30
    print(f"model {built - began:.1f} s, steps {time.time() - built:.1f} s, {gib:.1f} GiB")


if __name__ == "__main__":
    main()
