"""A training run for pictures: it reports as one does that learns, and some do not."""

from __future__ import annotations

import argparse
import math
import random
import sys
import time

import stoker
from stoker.testing import state
from stoker.testing.train import Device, _visible_line


def main() -> None:
    """Train for a while."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--bs", type=int, default=64)
    parser.add_argument("--opt", default="adam")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--steps", type=int, default=40)
    args = parser.parse_args()
    box = state.from_env()
    device = Device(box, None if box is None else _visible_line(box))
    rng = random.Random(f"{args.lr}{args.bs}{args.opt}{args.dropout}")
    miss = abs(math.log10(args.lr) + (2.6 if args.opt == "adam" else 1.7))
    speed = 3.5 * math.exp(-miss) * (1.15 if args.bs == 64 else 1.0)
    try:
        device.allocate(int((3 + args.bs / 16) * (1 << 30)))
        if args.bs >= 256 and args.opt == "adam":
            device.allocate(40 << 30)
        print(f"\x1b[1mtraining\x1b[0m lr={args.lr} bs={args.bs} opt={args.opt}", flush=True)
        for step in range(1, args.steps + 1):
            if miss > 1.5 and step > args.steps // 2:
                print("\n\x1b[31mloss is nan\x1b[0m", flush=True)
                sys.exit(3)
            time.sleep(args.seconds / args.steps)
            loss = 0.08 + 2.2 * math.exp(-speed * step / args.steps) + rng.gauss(0, 0.015)
            accuracy = 1 - 0.36 * loss + 0.02 * args.dropout + rng.gauss(0, 0.004)
            stoker.report(step, loss=round(loss, 4), val_acc=round(accuracy, 4))
            part = round(30 * step / args.steps)
            bar = f"{'━' * part}{' ' * (30 - part)}"
            print(f"\r\x1b[32m{bar}\x1b[0m {step}/{args.steps} loss {loss:.3f}", end="", flush=True)
            if step % 10 == 0:
                print(
                    f"\r\x1b[2K\x1b[36mstep {step:>3}\x1b[0m loss {loss:.4f} val_acc {accuracy:.4f}"
                )
    finally:
        device.release()
    print("\r\x1b[2K\x1b[32mdone\x1b[0m")


if __name__ == "__main__":
    main()
