"""Which GPUs a node has that a batch system started."""

from __future__ import annotations

from stoker.cluster.slurm.given_gpus import given_gpus


def test_a_node_outside_a_batch_system_may_use_every_gpu() -> None:
    assert given_gpus({}, 4) is None


def test_the_visible_gpus_count_also_where_slurm_names_others() -> None:
    hidden = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2,3", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert given_gpus(hidden, 2) == "0,1"
    assert given_gpus({"CUDA_VISIBLE_DEVICES": "2,3"}, 4) == "2,3"


def test_a_slurm_job_without_gpus_has_none() -> None:
    assert given_gpus({"SLURM_JOB_ID": "7"}, 4) == ""
    for word in ("", "NoDevFiles", "-1"):
        assert given_gpus({"SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": word}, 4) == ""


def test_gpus_of_the_job_have_the_numbers_that_the_driver_gives_them() -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2,3"}
    assert given_gpus(job, 4) == "2,3"
    assert given_gpus(job, 2) == "0,1"  # Slurm hides the others
    assert given_gpus(job, None) == "2,3"
