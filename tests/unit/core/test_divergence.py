from __future__ import annotations

import math

import pytest

from stoker.core.divergence import (
    ReportedValues,
    Value,
    may_show_divergence,
    read_losses,
    read_metrics,
)

NAN, INF = math.nan, math.inf


def text_after(
    *numbers: float, wait_s: float = 0.0, place: str = "", name: str = "loss"
) -> str | None:
    """What is said of a metric after these values, a second apart, and a wait."""
    values = ReportedValues(place)
    for step, number in enumerate(numbers):
        values.note(Value(name, number, step), float(step))
    found = values.divergence(len(numbers) - 1 + wait_s)
    return None if found is None else found.text


def test_three_reports_in_a_row_that_are_not_finite_are_a_divergence() -> None:
    assert text_after(0.5, NAN, NAN) is None
    assert text_after(0.5, NAN, NAN, NAN) == "loss is nan since step 1"
    assert text_after(0.5, NAN, INF, -INF) == "loss is nan since step 1"
    assert text_after(0.5, INF, INF, INF, place=" in its log") == (
        "loss is infinite in its log since step 1"
    )


def test_a_single_loss_counts_once_it_is_a_minute_old() -> None:
    assert text_after(0.5, NAN, wait_s=59) is None
    assert text_after(0.5, NAN, wait_s=60) == "loss is nan since step 1"
    assert text_after(0.5, NAN, wait_s=60, name="Val_Loss") == "Val_Loss is nan since step 1"


def test_a_norm_of_gradients_that_overflows_now_and_then_is_no_divergence() -> None:
    norms = (1.0, INF, NAN, 1.0) * 5
    assert text_after(*norms, NAN, NAN, wait_s=1000, name="grad_norm") is None
    assert text_after(*norms, NAN, NAN, NAN, name="grad_norm") == "grad_norm is nan since step 20"


def test_a_finite_value_ends_a_divergence() -> None:
    assert text_after(NAN, NAN, NAN, NAN, 0.5, wait_s=1000) is None
    assert text_after(NAN, NAN, 0.5, NAN, NAN) is None


def test_infinite_from_the_start_is_an_initial_value() -> None:
    assert text_after(INF, INF, INF, INF, wait_s=1000) is None
    assert text_after(INF, 0.5, INF, INF, INF) == "loss is infinite since step 2"
    assert text_after(INF, NAN, NAN, NAN) == "loss is nan since step 1"


def test_the_value_that_diverged_first_is_named() -> None:
    values = ReportedValues()
    for at in range(6):
        values.note(Value("acc", 0.9), at)
        values.note(Value("val_loss", NAN if at > 2 else 1.0, at), at)
        values.note(Value("loss", NAN if at > 1 else 1.0, at), at)
    found = values.divergence(5)
    assert found is not None
    assert (found.since, found.text) == (2, "loss is nan since step 2")


def test_only_so_many_names_are_followed() -> None:
    values = ReportedValues()
    for number in range(300):
        for at in range(3):
            values.note(Value(f"m{number}", NAN if number > 250 else 1.0), at)
    assert values.divergence(1000) is None


def test_lines_of_stoker_report_are_read() -> None:
    data = b'{"step": 7, "time": 12.5, "loss": "nan", "acc": 0.5, "note": "nan is a word", "ok": true}\n'
    loss, acc = read_metrics(data)
    assert (loss.name, math.isnan(loss.number), loss.step, loss.time) == ("loss", True, 7, 12.5)
    assert acc == Value("acc", 0.5, 7, 12.5)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no json",
        b"[1, 2]",
        b'{"loss": "nan"',
        b'{"loss": ["nan"]}',
        b'{"loss": {"nan": 1}}',
        b"\xff\xfe\x00\x01",
        b'{"a": ' + b"[" * 100_000,
    ],
)
def test_other_lines_report_nothing(line: bytes) -> None:
    data = line + b'\n{"loss": 1}\n'
    assert [(each.name, each.number) for each in read_metrics(data)] == [("loss", 1.0)]


def test_names_and_numbers_of_any_size_are_cut() -> None:
    name = "x" * 5000 + "\\u0000\\u001b[31m"
    data = f'{{"{name}": {"9" * 5000}, "\\u001b[31m": 1e999, "step": 1e999}}\n'.encode()
    first, second = read_metrics(data)
    assert first.name == "x" * 59 + "…"
    assert math.isfinite(first.number)
    assert (second.name, second.step) == ("?[31m", None)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("step 3/10 loss nan", "loss"),
        ("{'loss': nan, 'grad_norm': nan}", "loss"),
        ("100%|##| 10/10 [00:01<00:00, 9.9it/s, train_loss=nan.0]", "train_loss"),
        ("1875/1875 - 3s - loss: nan - accuracy: 0.0987", "loss"),
        ("step 250: train loss 1.9, val loss nan", "val loss"),
        ("lm loss: NaN | grad norm: 1.0", "lm loss"),
        ('"eval/loss": "nan"', "eval/loss"),
    ],
)
def test_losses_are_found_as_libraries_print_them(line: str, name: str) -> None:
    assert may_show_divergence(line.encode())
    found = [each for each in read_losses(line.encode()) if math.isnan(each.number)]
    assert [each.name for each in found] == [name]


@pytest.mark.parametrize(
    "line",
    [
        "the loss is nan",
        "loss=nanosecond",
        "loss_scale: nan",
        "lossnan",
        "glossary: info",
        "loss\nnan",
        "accuracy: nan",
    ],
)
def test_other_words_are_no_losses(line: str) -> None:
    assert list(read_losses(line.encode())) == []


def test_finite_losses_are_read_too() -> None:
    found = list(read_losses(b"loss 1.2.3 x_loss=-.5 loss: 3e-4, Loss 7, loss -inf"))
    assert [each.number for each in found] == [1.2, 3e-4, 7.0, -INF]


@pytest.mark.parametrize(
    "text",
    [
        b"a" * 2**18,
        b"loss" * 2**16,
        b"loss    " * 2**15,
        (b"loss " + b"1" * 30) * 2**13,
        b"nan " * 2**16,
        bytes(range(256)) * 2**10,
    ],
)
def test_no_text_makes_the_search_slow(text: bytes) -> None:
    # A search that goes back and forth over such a text would outlast the time limit of a test.
    assert all(math.isfinite(each.number) for each in read_losses(text))
