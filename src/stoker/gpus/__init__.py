"""GPUs of this machine: NVML, measurements, leases, and the grammar of `--gpus`."""
