"""Options of other tools, and how messages name them."""

from __future__ import annotations

import pytest

from stoker.errors import ConflictError, StokerError, UsageError
from stoker.integrations.queue_options import spelled_as

NAMES = {"-g": "gpus", "--mem": "mem_gb", "--on": "gpu_model"}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (UsageError("ask for fewer (-g)", field="gpus"), "ask for fewer (gpus)"),
        (UsageError("ask for less (--cpus, --mem)"), "ask for less (--cpus, mem_gb)"),
        (UsageError("--on a100 is a kind of GPU"), "gpu_model=a100 is a kind of GPU"),
        (ConflictError("restart --gpus 0; add -g 0"), "restart --gpus 0; add gpus=0"),
        (UsageError("no file /x-g or a-g b--mem c"), "no file /x-g or a-g b--mem c"),
    ],
)
def test_errors_of_the_queue_name_the_options_of_the_tool(error: StokerError, text: str) -> None:
    with pytest.raises(type(error)) as raised, spelled_as(NAMES):
        raise error

    assert str(raised.value) == text
    assert raised.value.field == error.field
