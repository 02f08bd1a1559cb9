"""Certificates by which the boxes of a cluster authenticate each other (mutual TLS).

The user names the files with Ray's own variables when a box joins a cluster. `<home>/cluster/tls.json`
keeps their paths, so that Ray finds them after a restart.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import stat
from collections.abc import Mapping

import msgspec

from stoker.cluster.settings import folder_of, read_struct, write_file
from stoker.errors import StokerError, UsageError

_SWITCH = "RAY_USE_TLS"
_VARIABLES = {
    "cert": "RAY_TLS_SERVER_CERT",
    "key": "RAY_TLS_SERVER_KEY",
    "ca": "RAY_TLS_CA_CERT",
}
_ON, _OFF = ("1", "true"), ("", "0", "false")
_FILE = "tls.json"
_TIMEOUT_S = 5.0
HOW_TO_NAME = (
    f"{_SWITCH}=1 {' '.join(f'{name}=FILE' for name in _VARIABLES.values())} before the command"
)


class Certificates(msgspec.Struct, frozen=True, kw_only=True):
    """Paths of this box's certificate, of its key, and of the certificate of the common authority."""

    cert: str
    key: str
    ca: str


def find_certificates(environ: Mapping[str, str], own_address: str) -> Certificates | None:
    """Return the certificates that the environment names; None if it does not turn TLS on.

    Raises UsageError for files that a box with this address cannot use.
    """
    switch = environ.get(_SWITCH, "").strip().lower()
    if switch in _OFF:
        return None
    if switch not in _ON:
        raise UsageError(f"{_SWITCH} must be 1 or 0, not {switch!r}")
    missing = [name for name in _VARIABLES.values() if not environ.get(name)]
    if missing:
        raise UsageError(f"{_SWITCH}=1 needs {' and '.join(missing)} too")
    found = Certificates(
        **{field: os.path.abspath(environ[name]) for field, name in _VARIABLES.items()}
    )
    _check_key(found.key)
    _check_handshake(found, own_address)
    return found


def load_certificates(home: str) -> Certificates | None:
    """Return the certificates that this box uses in its cluster; None without TLS."""
    return read_struct(os.path.join(folder_of(home), _FILE), Certificates)


def save_certificates(home: str, certificates: Certificates | None) -> None:
    """Use these certificates from now on; None turns TLS off."""
    if certificates is not None:
        write_file(home, _FILE, msgspec.json.encode(certificates))
        return
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder_of(home), _FILE))


def tls_environment(certificates: Certificates | None) -> dict[str, str]:
    """Return Ray's variables for these certificates."""
    if certificates is None:
        return {_SWITCH: "0"}
    named = {name: getattr(certificates, field) for field, name in _VARIABLES.items()}
    return {_SWITCH: "1", **named}


def speaks_tls(address: str, port: int) -> bool:
    """Whether a server answers a TLS greeting, even if it refuses clients without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent; only the kind of the answer matters
    try:
        _greet(context, address, port).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # the server refuses us, in TLS
    except OSError:
        return False
    return True


def check_peer(address: str, port: int, certificates: Certificates) -> None:
    """Raise StokerError unless this box and a server accept each other's certificates."""
    try:
        with _greet(_context(ssl.PROTOCOL_TLS_CLIENT, certificates), address, port) as connection:
            connection.recv(1)  # the server greets clients that it accepts
    except ssl.SSLCertVerificationError as error:
        raise StokerError(
            f"the certificate of {address} is not accepted here ({error.verify_message}): the authority"
            f" {certificates.ca} must sign those of all boxes"
        ) from None
    except OSError as error:
        raise StokerError(
            f"{address} does not accept the certificate {certificates.cert}"
            f" ({getattr(error, 'reason', None) or error}): one authority must sign those of all boxes"
        ) from None


def _greet(context: ssl.SSLContext, address: str, port: int) -> ssl.SSLSocket:
    context.set_alpn_protocols(["h2"])
    plain = socket.create_connection((address, port), timeout=_TIMEOUT_S)
    try:
        return context.wrap_socket(plain, server_hostname=address)
    except BaseException:
        plain.close()
        raise


def _check_key(path: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise UsageError(f"cannot read the key {path}: {error.strerror}") from None
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise UsageError(f"every user of this box can read the key {path}: chmod 600 {path}")


def _check_handshake(certificates: Certificates, address: str) -> None:
    """Raise UsageError unless this box would accept its own certificate at its own address."""
    try:
        server = _context(ssl.PROTOCOL_TLS_SERVER, certificates)
        client = _context(ssl.PROTOCOL_TLS_CLIENT, certificates)
        _shake_hands(server, client, address)
    except ssl.SSLCertVerificationError as error:
        raise UsageError(
            f"other boxes would not accept {certificates.cert} for {address}: {error.verify_message}"
        ) from None
    except (ssl.SSLError, OSError) as error:
        files = f"{certificates.cert}, {certificates.key} or {certificates.ca}"
        raise UsageError(
            f"cannot use {files}: {error.strerror or getattr(error, 'reason', '') or error}"
        ) from None


def _context(protocol: int, certificates: Certificates) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(certificates.cert, certificates.key, password=lambda: b"")
    context.load_verify_locations(certificates.ca)
    return context


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, address: str) -> None:
    """Run the handshake of both sides within this process."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=address),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _round in range(5):
        for side in [*sides]:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                sides.remove(side)
    if sides:
        raise StokerError("the TLS handshake of this box with itself does not finish")
