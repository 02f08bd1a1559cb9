"""Hugging Face's Trainer that saves when Stoker preempts it, and goes on from there.

stoker add --preemptible --checkpoint hf python train_hf.py
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Numbers(Dataset[Any]):
    """Points of a line; reading one takes a while."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        time.sleep(0.01)
        x = torch.tensor([index / 10_000])
        return {"x": x, "labels": 3 * x}


class Line(torch.nn.Module):
    """A model with two parameters, in the form that the Trainer wants."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss and the prediction."""
        found = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


def main() -> None:
    """Train to the last step, from the last checkpoint if there is one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    steps = parser.parse_args().steps
    folder = os.environ.get("STOKER_CHECKPOINT_DIR", "checkpoints")
    arguments = TrainingArguments(
        output_dir=folder,
        enable_jit_checkpoint=True,  # saves and ends on SIGTERM
        max_steps=steps,
        dataloader_num_workers=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(Line(), arguments, train_dataset=Numbers())
    checkpoint = get_last_checkpoint(folder) if os.path.isdir(folder) else None
    print(f"goes on from {checkpoint and os.path.basename(checkpoint)}", flush=True)
    trainer.train(resume_from_checkpoint=checkpoint)
    print(f"ends at step {trainer.state.global_step} of {steps}", flush=True)


if __name__ == "__main__":
    main()
