from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.selector import Last, Named, Span, Term, check_name, parse_selector
from stoker.errors import UsageError

steady = settings(derandomize=True, deadline=None)
ids = st.integers(0, 10**18 - 1)
any_text = st.text(max_size=20)


def is_refused(text: str) -> bool:
    try:
        check_name("the name", text)
    except UsageError:
        return True
    return False


names = any_text.filter(lambda text: text and not is_refused(text))


@st.composite
def written(draw: st.DrawFn) -> tuple[str, Term]:
    """A term as people type it, and what it means."""
    kind = draw(st.sampled_from(["id", "range", "@", "name", "project", "whole"]))
    match kind:
        case "id":
            number = draw(ids)
            return str(number), Span(number, number)
        case "range":
            first, last = sorted((draw(ids), draw(ids)))
            return f"{first}-{last}", Span(first, last)
        case "@":
            return "@", Last()
    name, project, number = draw(names), draw(names), draw(ids)
    match kind:
        case "name":
            return name, Named(name)
        case "project":
            return f"{project}/{name}", Named(name, project)
    return f"{project}/{name}/{number}", Named(name, project, number)


@steady
@given(
    st.lists(written(), min_size=1, max_size=5), st.sampled_from([",", " ", ", ", " ,, ", "\t\n"])
)
def test_what_is_typed_is_what_is_meant(terms: list[tuple[str, Term]], gap: str) -> None:
    text = gap.join(word for word, _meant in terms)

    assert parse_selector(text) == [meant for _word, meant in terms]


@steady
@given(any_text)
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    complaint = ""
    try:
        terms = parse_selector(text)
    except UsageError as error:
        terms, complaint = [], str(error)

    assert terms or len(complaint.splitlines()) == 1


@pytest.mark.parametrize("text", ["", " ", ",", " , \n"])
def test_an_empty_selector_names_no_job(text: str) -> None:
    with pytest.raises(UsageError, match="no job given"):
        parse_selector(text)


def test_a_range_that_runs_backwards_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match="write 5-9"):
        parse_selector("1,9-5")


@pytest.mark.parametrize(
    "text", ["/", "a/", "/a", "a//1", "//", "a/b/c", "a/b/1/2", "a/b/-1", "p/n/", "a/b/1.5"]
)
def test_what_is_neither_id_nor_name_is_refused_with_what_there_is_to_write(text: str) -> None:
    with pytest.raises(UsageError, match="is not a job: write an id, a name, project/name"):
        parse_selector(text)


def test_the_digits_of_other_scripts_are_no_id() -> None:
    assert parse_selector("٣") == [Named("٣")]
    with pytest.raises(UsageError):
        parse_selector("p/n/٣")


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        " a",
        "a\n",
        "a,b",
        "a/b",
        "a\0b",
        "\x1b[31m",
        "a\x9bb",
        "a\u2003b",
        "a\u00a0b",
        "a\u2028b",
    ],
)
def test_a_name_that_could_not_be_typed_or_filed_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="contains a blank, a comma, a / or a control character"):
        check_name("the name", name)


@pytest.mark.parametrize("name", ["7", "1-5", "@", ".", "..", "daemon", "-x", "--all"])
def test_a_name_that_would_be_taken_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="has another meaning on the command line"):
        check_name("the project", name)


@pytest.mark.parametrize("name", ["train", "lr=0.1", "a.b", "ü", "run-5", "5x", "{id}", "daemons"])
def test_other_names_are_welcome(name: str) -> None:
    check_name("the name", name)
