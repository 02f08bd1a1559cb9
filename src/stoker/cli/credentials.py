"""Credentials of this machine in a cluster: Ray's token and, with TLS, certificates."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NamedTuple

from stoker.cluster import ray_survey, settings
from stoker.cluster.admission import exchange_join_token
from stoker.cluster.authority import (
    forget_authority,
    keep_certificate,
    make_authority,
    make_request,
)
from stoker.cluster.join_tokens import JoinToken, parse_join_token
from stoker.cluster.ray_command import TOKEN_VARIABLE
from stoker.cluster.tls import Certificates, find_certificates, load_certificates, save_certificates
from stoker.errors import StokerError, UsageError


class Credentials(NamedTuple):
    """Ray's token, and this machine's certificates; None in a cluster without TLS."""

    token: str
    certificates: Certificates | None

    def save(self, home: str) -> None:
        """Save both in the home."""
        settings.save_token(home, self.token)
        save_certificates(home, self.certificates)


def make_credentials(home: str, address: str, *, use_tls: bool) -> Credentials:
    """Make the credentials of a new cluster whose head has this address."""
    certificates = find_certificates(os.environ, address)
    if certificates is None and use_tls:
        try:
            certificates = make_authority(home, *_names_of(address))
        except StokerError as error:
            raise StokerError(
                f"{error}; or, on a network without other users: stoker cluster up --no-tls"
            ) from None
    return Credentials(settings.make_token(), certificates)


def _names_of(address: str) -> list[str]:
    """Return the head's addresses for its certificate: Ray replaces a loopback address by another."""
    names = [address]
    if address.startswith("127."):
        with contextlib.suppress(StokerError):
            names.append(ray_survey.outward_address())
    return names


@contextlib.contextmanager
def find_credentials(home: str, address: str, port: int) -> Iterator[Credentials]:
    """Return credentials for a cluster: from a join token, from the user, or saved before.

    Certificates that are made here are removed if the block fails.
    """
    given = _find_token(home)
    own = find_certificates(os.environ, ray_survey.own_address(address, port))
    if given is None:
        yield Credentials(settings.load_token(home) or "", own or load_certificates(home))
        return
    join_token = parse_join_token(given)
    if join_token is None or own is not None:
        if join_token is not None:
            given = exchange_join_token(address, settings.join_port(port), join_token).token
        yield Credentials(given, own)
        return
    try:
        yield _exchange(home, address, port, join_token)
    except BaseException:
        forget_authority(home)
        raise


def _exchange(home: str, address: str, port: int, join_token: JoinToken) -> Credentials:
    """Exchange a join token for Ray's token and a certificate of the head."""
    missing: StokerError | None = None
    key = request = ""
    try:
        key, request = make_request()
    except StokerError as error:
        missing = error  # it matters only in a cluster with TLS
    made = exchange_join_token(address, settings.join_port(port), join_token, request)
    if made.authority is None:
        return Credentials(made.token, None)
    if made.certificate is None:
        raise missing or StokerError(
            "the first box gave no certificate: install the same version of Stoker on both"
        )
    return Credentials(made.token, keep_certificate(home, key, made.certificate, made.authority))


def _find_token(home: str) -> str | None:
    """Return the token that the user gives; None if one was saved before."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given:
        return settings.check_token(given)
    if settings.load_token(home) is not None:
        return None
    if not sys.stdin.isatty():
        raise UsageError(
            f"the token is missing: {TOKEN_VARIABLE}=… stoker cluster join …, as stoker cluster up"
            " prints it on the first box"
        )
    import getpass

    return settings.check_token(getpass.getpass("token of the cluster (not shown): "))
