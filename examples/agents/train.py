"""A training script: the agent sweeps its learning rate."""

import argparse

import stoker

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, required=True)
lr = parser.parse_args().lr
weight = 0.0
for step in range(20):
    loss = (weight - 3.0) ** 2
    weight -= lr * 2 * (weight - 3.0)
    stoker.report(step=step, loss=loss)
print(f"lr {lr}: loss {loss:.6f}")
