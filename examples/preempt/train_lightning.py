"""A Lightning training that saves when Stoker preempts it, and goes on from there.

stoker add --preemptible --checkpoint lightning python train_lightning.py
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import OnExceptionCheckpoint
from torch.utils.data import DataLoader, Dataset


class Numbers(Dataset[Any]):
    """Points of a line; reading one takes a while."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.01)
        return torch.tensor([index / 10_000])


class Line(lightning.LightningModule):
    """A model with two parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def on_train_start(self) -> None:
        """Show where the training begins."""
        print(f"goes on from step {self.global_step}", flush=True)

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch."""
        return torch.nn.functional.mse_loss(self.layer(batch), 3 * batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    """Train to the last step, from the checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps
    folder = os.environ.get("STOKER_CHECKPOINT_DIR", "checkpoints")
    saving = OnExceptionCheckpoint(folder)  # on SIGTERM, too: Lightning raises SIGTERMException
    trainer = lightning.Trainer(
        max_steps=steps,
        callbacks=[saving],
        enable_progress_bar=False,
        logger=False,
        devices=1,
    )
    checkpoint = saving.ckpt_path if os.path.exists(saving.ckpt_path) else None
    trainer.fit(Line(), DataLoader(Numbers(), batch_size=8, num_workers=1), ckpt_path=checkpoint)
    print(f"ends at step {trainer.global_step} of {steps}", flush=True)


if __name__ == "__main__":
    main()
