"""What a session accepts, and what it does not."""

from __future__ import annotations

import pytest

from stoker.web.handshake import Authorization, Session, is_same, page_proof, server_proof

NONCES = ("a" * 32, "b" * 32)


def sign(session: Session, number: int = 1, body: bytes = b"{}") -> Authorization:
    return Authorization(session.sign_request("POST", "/v1/add", body, number))


def test_the_daemons_proof_is_not_the_pages() -> None:
    assert server_proof("secret", *NONCES) != page_proof("secret", *NONCES)
    assert server_proof("secret", *NONCES) != server_proof("secret", *reversed(NONCES))


def test_a_request_is_accepted_once_and_only_in_its_session() -> None:
    session, other = Session("secret", *NONCES), Session("secret", "c" * 32, NONCES[1])
    signed = sign(session)
    assert not other.accept_request("POST", "/v1/add", signed)
    assert session.accept_request("POST", "/v1/add", signed)
    assert not session.accept_request("POST", "/v1/add", signed)


@pytest.mark.parametrize(
    ("method", "target"), [("GET", "/v1/add"), ("POST", "/v1/kill"), ("POST", "/v1/add?x=1")]
)
def test_a_signature_is_for_one_method_and_target(method: str, target: str) -> None:
    session = Session("secret", *NONCES)
    assert not session.accept_request(method, target, sign(session))


def test_another_digest_or_number_makes_a_signature_wrong() -> None:
    session = Session("secret", *NONCES)
    for change in ({"digest": "0" * 64}, {"number": 2}, {"signature": "0" * 64}):
        signed = sign(session)
        vars(signed).update(change)
        assert not session.accept_request("POST", "/v1/add", signed)


def test_request_numbers_may_be_reordered_within_a_window() -> None:
    session = Session("secret", *NONCES)
    late, later = sign(session, 1), sign(session, 4999)
    for number in range(5000, 10_000):
        assert session.accept_request("POST", "/v1/add", sign(session, number))
        if number == 5000:
            assert session.accept_request("POST", "/v1/add", later)
    assert not session.accept_request("POST", "/v1/add", late)
    assert not session.accept_request("POST", "/v1/add", later)
    assert len(session._requests) < 5000


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer x",
        "Stoker a.b.c.d",
        "Stoker a.1.c",
        "Stoker a.-1.c.d",
        "Stoker a.².c.d",
        "Stoker",
    ],
)
def test_other_authorization_headers_are_not_parsed(header: str) -> None:
    with pytest.raises(ValueError, match="not an Authorization header"):
        Authorization(header)


@pytest.mark.parametrize("given", ["", "a", "abcd", "abcé", "\ud800"])
def test_only_equal_texts_compare_as_equal(given: str) -> None:
    assert is_same("abc", "abc")
    assert not is_same(given, "abc")
