"""Why an attempt failed, by the texts that frameworks really print."""

from __future__ import annotations

import pytest

from stoker.core.diagnosis import classify
from stoker.core.failure import Facts, Failure, FailureClass, Remedy

EXIT_1 = 1 << 8
SIGKILL = 9
GIB = 2**30

TORCH = """\
step 40/1000 loss 0.4182
Traceback (most recent call last):
  File "/home/ann/train.py", line 88, in <module>
    loss.backward()
  File "/opt/torch/_tensor.py", line 581, in backward
    torch.autograd.backward(
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of \
79.25 GiB of which 512.00 MiB is free. Process 41230 has 40.00 GiB memory in use. Process 41231 has \
20.00 GiB memory in use. Including non-PyTorch memory, this process has 18.75 GiB memory in use. Of the \
allocated memory 17.90 GiB is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.
"""
TORCH_1 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.69 GiB total capacity;"
    " 20.12 GiB already allocated; 1.06 GiB free; 20.50 GiB reserved in total by PyTorch) If reserved"
    " memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.\n"
)
TORCH_CAPPED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total"
    " capacity of 79.25 GiB of which 60.00 GiB is free. 8.00 GiB allowed; Of the allocated memory 7.50"
    " GiB is allocated by PyTorch, and 100.00 MiB is reserved by PyTorch but unallocated.\n"
)
JAX = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate"
    " 17179869184 bytes.\n"
)
JAX_ALLOCATING = "RESOURCE_EXHAUSTED: Out of memory allocating 68719476736 bytes.\n"
TENSORFLOW = """\
Traceback (most recent call last):
  File "fit.py", line 3, in <module>
tensorflow.python.framework.errors_impl.ResourceExhaustedError: Graph execution error:

Detected at node 'dense/MatMul' defined at (most recent call last):
OOM when allocating tensor with shape[65536,65536] and type float on /job:localhost/replica:0/task:0/\
device:GPU:0 by allocator GPU_0_bfc
"""
# torch 2.10, `torchrun --nproc-per-node 2` beside another one
PORT_TAKEN = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
    " port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
)
NCCL = """\
[rank1]: Traceback (most recent call last):
[rank1]:   File "ddp.py", line 12, in <module>
[rank1]: torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/\
ProcessGroupNCCL.cpp:2006, unhandled system error (run with NCCL_DEBUG=INFO for details), NCCL version 2.20.5
"""
WATCHDOG = (
    "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout:"
    " WorkNCCL(SeqNum=5, OpType=ALLREDUCE) ran for 1800017 milliseconds before timing out.\n"
)
ILLEGAL = """\
Traceback (most recent call last):
  File "a.py", line 3, in <module>
RuntimeError: CUDA error: an illegal memory access was encountered
CUDA kernel errors might be asynchronously reported at some other API call
"""
CHILD_FAILED = """\
Traceback (most recent call last):
  File "/opt/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
"""


def trace(line: str) -> str:
    return f'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n{line}\n'


def kind_of(tail: str, status: int = EXIT_1, facts: Facts | None = None) -> FailureClass:
    return classify(status, tail, facts or Facts()).kind


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (TORCH, "gpu_oom"),
        (TORCH_1, "gpu_oom"),
        (TORCH_CAPPED, "gpu_oom"),
        (JAX, "gpu_oom"),
        (JAX_ALLOCATING, "gpu_oom"),
        (TENSORFLOW, "gpu_oom"),
        (trace("torch.cuda.OutOfMemoryError: CUDA out of memory."), "gpu_oom"),
        (trace("RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB."), "gpu_oom"),
        (trace("RuntimeError: CUDA error: out of memory"), "gpu_oom"),
        (trace("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "gpu_oom"),
        (trace("RuntimeError: cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), "gpu_oom"),
        ("failed to alloc 2147483648 bytes: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n", "gpu_oom"),
        ("Last error:\nCuda failure 2 'out of memory'\nNCCL error in: x.cpp:1\n", "gpu_oom"),
        (trace("MemoryError"), "host_oom"),
        (
            trace("numpy.core._exceptions._ArrayMemoryError: Unable to allocate 745. GiB"),
            "host_oom",
        ),
        (
            trace("RuntimeError: DataLoader worker (pid 3128) is killed by signal: Killed. "),
            "host_oom",
        ),
        (
            trace("RuntimeError: DataLoader worker (pid(s) 12, 13) exited unexpectedly"),
            "host_oom",
        ),
        (ILLEGAL, "gpu_fault"),
        (trace("RuntimeError: CUDA error: uncorrectable ECC error encountered"), "gpu_fault"),
        (trace("RuntimeError: CUDA error: unspecified launch failure"), "gpu_fault"),
        (NCCL, "nccl"),
        (WATCHDOG, "nccl"),
        (trace(PORT_TAKEN), "port_taken"),
        (trace("OSError: [Errno 98] Address already in use"), "port_taken"),
        (trace("OSError: [Errno 28] No space left on device"), "disk_full"),
        (trace("OSError: [Errno 122] Disk quota exceeded: 'ckpt.pt'"), "disk_full"),
        (trace("ModuleNotFoundError: No module named 'flash_attn'"), "setup"),
        (trace("ImportError: libcudnn.so.9: cannot open shared object file"), "setup"),
        (trace("FileNotFoundError: [Errno 2] No such file or directory: 'a.yaml'"), "setup"),
        ("python: can't open file '/x/trian.py': [Errno 2] No such file or directory\n", "setup"),
        (trace("RuntimeError: CUDA driver version is insufficient for CUDA runtime"), "setup"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "setup"),
        (trace("ValueError: batch size must be positive"), "error"),
        (trace("RuntimeError: CUDA error: device-side assert triggered"), "error"),
        ("step 3 loss nan\n", "error"),
        ("", "error"),
    ],
)
def test_a_framework_s_own_text_tells_the_class(tail: str, kind: str) -> None:
    assert kind_of(tail) is FailureClass(kind)


def test_a_success_is_never_read() -> None:
    with pytest.raises(ValueError, match="succeeded"):
        classify(0, TORCH)


def test_torch_s_figures_tell_what_would_have_been_needed() -> None:
    failure = classify(EXIT_1, TORCH)
    assert failure.figures is not None
    assert failure.figures.tried_bytes == 2.5 * GIB
    assert failure.figures.free_bytes == 512 * 2**20
    assert failure.figures.others_bytes == 60 * GIB
    assert failure.figures.need_bytes == (18.75 + 2.5) * GIB
    assert failure.reason == (
        "exit 1: GPU out of memory: wanted 2.5 GiB more, 512 MiB of 79.2 GiB was free"
        " (itself 18.8 GiB, others 60.0 GiB)"
    )


def test_older_torch_is_understood_as_well() -> None:
    figures = classify(EXIT_1, TORCH_1).figures
    assert figures is not None
    assert figures.free_bytes == int(1.06 * GIB)
    assert figures.total_bytes == int(23.69 * GIB)
    assert figures.need_bytes == 22.5 * GIB


def test_a_cap_on_its_memory_is_told_from_a_full_gpu() -> None:
    figures = classify(EXIT_1, TORCH_CAPPED).figures
    assert figures is not None
    assert figures.allowed_bytes == 8 * GIB
    assert figures.free_bytes == 60 * GIB


def test_jax_tells_what_it_tried_to_allocate() -> None:
    for text, tried in ((JAX, 16 * GIB), (JAX_ALLOCATING, 64 * GIB)):
        figures = classify(EXIT_1, text).figures
        assert figures is not None
        assert figures.need_bytes == tried


def test_a_message_without_figures_has_none() -> None:
    failure = classify(EXIT_1, trace("RuntimeError: CUDA error: out of memory"))
    assert failure.figures is not None
    assert failure.figures.need_bytes is None
    assert failure.reason == "exit 1: GPU out of memory"


def test_the_ranks_that_lose_a_dead_one_do_not_hide_what_it_died_of() -> None:
    assert kind_of(TORCH + NCCL + CHILD_FAILED) is FailureClass.GPU_OOM


@pytest.mark.parametrize(
    "line",
    [
        "KeyError: 'lr'",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)",
        "ValueError: too many values to unpack (expected 2)",
        "OSError: [Errno 5] Input/output error",
        "mymodel.errors.DivergedError: loss is nan",
    ],
)
def test_an_error_that_was_handled_is_not_the_cause(line: str) -> None:
    over = "halving the batch: CUDA out of memory. Tried to allocate 2.00 GiB.\nstep 2\n"
    failure = classify(EXIT_1, over + trace(line))
    assert failure.kind is FailureClass.ERROR
    assert failure.reason == f"exit 1: {line}"


@pytest.mark.parametrize(
    "line",
    [
        "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "RuntimeError: Pin memory thread exited unexpectedly",
    ],
)
def test_a_waiting_process_has_the_cause_of_the_process_it_waited_for(line: str) -> None:
    assert kind_of(TORCH + trace(line)) is FailureClass.GPU_OOM


@pytest.mark.parametrize(
    "before",
    [
        "Exception ignored in: <function Writer.__del__ at 0x7f>\n",
        "Error in atexit._run_exitfuncs:\n",
        "Exception in thread QueueFeederThread:\n",
    ],
)
def test_what_goes_wrong_on_the_way_out_does_not_hide_why(before: str) -> None:
    assert kind_of(TORCH + before + trace("ValueError: I/O on closed file")) is FailureClass.GPU_OOM


def test_an_error_met_while_handling_another_has_that_one_s_cause() -> None:
    chained = (
        TORCH
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + trace("KeyError: 'checkpoint'")
    )
    assert kind_of(chained) is FailureClass.GPU_OOM


def test_an_import_that_was_tried_in_vain_is_no_setup_failure() -> None:
    tail = "ModuleNotFoundError: No module named 'apex'\nwithout apex\n" + trace("ValueError: lr")
    assert kind_of(tail) is FailureClass.ERROR


def test_a_kill_that_the_kernel_made_for_memory_is_told() -> None:
    failure = classify(SIGKILL, "step 3\n", Facts(oom_kills=True))
    assert failure.kind is FailureClass.HOST_OOM
    assert failure.reason == "killed by SIGKILL: out of memory: the kernel killed it"
    assert kind_of("step 3\n", SIGKILL) is FailureClass.ERROR


def test_a_port_in_use_is_named_with_the_remedy() -> None:
    assert classify(EXIT_1, trace(PORT_TAKEN)).reason == (
        "exit 1: port 29500 is taken by another process; with -g 2 or more, $MASTER_PORT is free"
    )


def test_a_command_that_does_not_exist_is_a_matter_of_setup() -> None:
    assert kind_of("", 127 << 8) is FailureClass.SETUP
    failure = classify(127 << 8, "/bin/sh: 1: trian: not found\n")
    assert failure.kind is FailureClass.SETUP
    assert failure.reason == "exit 127: command not found: trian"


def test_a_missing_command_is_named_whole_with_its_blanks() -> None:
    failure = classify(127 << 8, "python train.py: 1: python train.py: not found\n")

    assert failure.reason == "exit 127: command not found: 'python train.py'"


def test_a_reported_xid_explains_a_failure_with_a_silent_log() -> None:
    failure = classify(EXIT_1, "step 3\n", Facts(xid=79))
    assert failure.kind is FailureClass.GPU_FAULT
    assert failure.reason == "exit 1: GPU fault (XID 79)"


def test_a_full_disk_pauses_the_queue_only_if_the_disk_says_so_too() -> None:
    tail = trace("OSError: [Errno 28] No space left on device")
    assert classify(EXIT_1, tail).remedy is Remedy.AS_ASKED
    confirmed = classify(EXIT_1, tail, Facts(full_disk="/data"))
    assert confirmed.remedy is Remedy.WHEN_SPACE
    assert "/data is full" in confirmed.reason


def test_an_mps_fault_with_neighbours_is_attributed_to_no_job() -> None:
    assert kind_of(ILLEGAL, facts=Facts(mps=True, neighbours=True)) is FailureClass.NEIGHBOUR
    assert kind_of(ILLEGAL, facts=Facts(mps=True)) is FailureClass.GPU_FAULT
    told = trace(
        "RuntimeError: CUDA error: the remote procedural call failed; MPS server not ready"
    )
    assert kind_of(told, facts=Facts(mps=True, neighbours=True)) is FailureClass.NEIGHBOUR


@pytest.mark.parametrize(
    ("kind", "remedy"),
    [
        ("gpu_oom", "more room"),
        ("host_oom", "once more"),
        ("gpu_fault", "elsewhere"),
        ("nccl", "once more"),
        ("port_taken", "once more"),
        ("setup", "never"),
        ("error", "as asked"),
    ],
)
def test_every_class_has_its_remedy(kind: str, remedy: str) -> None:
    failure = Failure(kind=FailureClass(kind), reason="")
    assert failure.remedy is Remedy(remedy)


def test_a_reason_is_one_short_line() -> None:
    reason = classify(EXIT_1, trace("ValueError: " + "x" * 500)).reason
    assert len(reason) == 200
    assert reason.endswith("…")


def test_the_last_complaint_of_a_program_without_tracebacks_is_told() -> None:
    tail = "usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --lrr\n"
    assert classify(2 << 8, tail).reason.endswith("error: unrecognized arguments: --lrr")
    assert classify(3 << 8, "step 4 loss 0.3\n").reason == "exit 3"
