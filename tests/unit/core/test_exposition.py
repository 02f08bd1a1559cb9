"""Prometheus' text format, read back by the parser of Prometheus' own client library."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families as parse

from stoker.core.exposition import Family, Histogram, Sample, write_families

ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(ANY_TEXT, st.floats(allow_nan=False), min_size=1, max_size=5))
def test_any_name_and_value_is_read_as_it_was_written(values: dict[str, float]) -> None:
    samples = [Sample(value, {"project": name}) for name, value in values.items()]
    text = write_families([Family("stoker_x", "gauge", "Some.", samples)]).decode()
    (family,) = parse(text)
    assert {each.labels["project"]: each.value for each in family.samples} == values


def test_a_name_cannot_forge_another_series() -> None:
    forged = 'a"} 1\nstoker_jobs{state="done"} 999\n# TYPE x counter\n\\'
    text = write_families([Family("stoker_x", "gauge", "Some.", [Sample(1, {"project": forged})])])
    assert text.count(b"\n") == 3
    (family,) = parse(text.decode())
    assert [each.labels for each in family.samples] == [{"project": forged}]


def test_a_histogram_has_cumulative_buckets_a_sum_and_a_count() -> None:
    histogram = Histogram((1.0, 10.0))
    for value in (-5.0, 0.5, 1.0, 7.0, 1000.0):
        histogram.observe(value)
    (family,) = parse(
        write_families([Family("stoker_s", "histogram", "Some.", [Sample(histogram)])]).decode()
    )
    found = {(each.name, each.labels.get("le")): each.value for each in family.samples}
    assert found == {
        ("stoker_s_bucket", "1"): 3,
        ("stoker_s_bucket", "10"): 4,
        ("stoker_s_bucket", "+Inf"): 5,
        ("stoker_s_sum", None): 1008.5,
        ("stoker_s_count", None): 5,
    }


def test_a_family_without_samples_is_left_out_and_odd_numbers_are_kept() -> None:
    assert write_families([Family("stoker_x", "gauge", "Some.", [])]) == b""
    odd = [Sample(value, {"n": str(value)}) for value in (math.nan, -math.inf, 1e300, 0.1)]
    (family,) = parse(write_families([Family("stoker_x", "gauge", "Some.", odd)]).decode())
    read = [each.value for each in family.samples]
    assert math.isnan(read[0])
    assert read[1:] == [-math.inf, 1e300, 0.1]
