"""A training function that submitit sends to Stoker's queue, and that goes on after a preemption."""

from __future__ import annotations

import argparse
import os
import time

import submitit


class Train:
    """A run that can be interrupted: what it has reached is in its attributes."""

    def __init__(self) -> None:
        self.step = 0
        self.loss = 1.0

    def __call__(self, lr: float, steps: int) -> float:
        """Train to the last step, and return the loss."""
        print(
            f"lr {lr} from step {self.step} on GPU {os.environ['CUDA_VISIBLE_DEVICES']}", flush=True
        )
        while self.step < steps:
            self.loss *= 1 - lr
            time.sleep(0.01)  # the real work
            self.step += 1
            if self.step % 50 == 0:
                print(f"step {self.step}: loss {self.loss:.3f}", flush=True)
        return self.loss

    def checkpoint(self, lr: float, steps: int) -> submitit.helpers.DelayedSubmission:
        """Return the call that goes on. submitit pickles it with the attributes of this object."""
        return submitit.helpers.DelayedSubmission(self, lr, steps)


def main() -> None:
    """Submit a run for each learning rate, and print their losses."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    executor = submitit.AutoExecutor(folder="submitit", cluster="stoker")
    executor.update_parameters(name="train", gpus_per_node=1, stoker_preemptible=True)
    rates = [0.01, 0.001]
    jobs = executor.map_array(Train(), rates, [steps] * len(rates))
    for lr, job in zip(rates, jobs, strict=True):
        print(f"job {job.job_id}: lr {lr}, loss {job.result():.3f}")


if __name__ == "__main__":
    main()
