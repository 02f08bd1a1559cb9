"""A training script with Hydra: `python train.py -m lr=0.1,0.01` runs each job on a GPU of Stoker's queue."""

from __future__ import annotations

import logging
import os

import hydra
from omegaconf import DictConfig

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: DictConfig) -> float:
    """Return the loss, which sweepers such as Optuna's minimize."""
    log.info("lr %s on GPU %s", config.lr, os.environ.get("CUDA_VISIBLE_DEVICES", "none"))
    loss = 1.0
    for _step in range(config.steps):
        loss *= 1 - min(config.lr, 1.0)  # the real work
    return loss


if __name__ == "__main__":
    main()
