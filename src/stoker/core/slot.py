"""A slot: the GPUs that one job at a time gets."""

import msgspec


class Slot(msgspec.Struct, frozen=True):
    """A place where one job runs; several slots may name the same GPU, and then share it."""

    index: int
    gpus: tuple[str, ...]
    keys: tuple[str, ...]

    @property
    def visible(self) -> str:
        """What the job's CUDA_VISIBLE_DEVICES says."""
        return ",".join(self.gpus)

    @property
    def label(self) -> str:
        """How people are shown this slot; the same text names it in `--gpus`."""
        return "+".join(self.gpus)
