"""Fakes for machines without a GPU: NVML, MPS, a training job and an executor."""
