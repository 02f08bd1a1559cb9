"""Certificate authority of a cluster: creates the certificates of its boxes with openssl.

The head keeps the authority's key and signs a certificate for each box that joins with a join token.
The files are in `<home>/cluster/` with mode 0600:

    tls-ca.crt   tls-ca.key    the authority; the key is on the head alone
    tls-node.crt tls-node.key  this box

Certificates are valid from 2020 to 2099, because the clocks of boxes may differ. An authority ends with
its cluster: `stoker cluster leave` on the head removes its key.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import subprocess
import tempfile
from collections.abc import Iterator

from stoker.cluster.settings import folder_of, write_file
from stoker.cluster.tls import Certificates
from stoker.errors import StokerError

_CA_KEY, _CA_CERT = "tls-ca.key", "tls-ca.crt"
_NODE_KEY, _NODE_CERT = "tls-node.key", "tls-node.crt"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_DATES = ("-startdate", "20200101000000Z", "-enddate", "20991231235959Z")
_TIMEOUT_S = 30.0
_CONFIG = """\
[req]
prompt = no
distinguished_name = name
[name]
CN = {name}
[ca]
default_ca = authority
[authority]
database = index
new_certs_dir = .
default_md = sha256
policy = policy
rand_serial = yes
unique_subject = no
[policy]
commonName = supplied
[of_authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
[of_node]
basicConstraints = critical,CA:FALSE
keyUsage = critical,digitalSignature
extendedKeyUsage = serverAuth,clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {addresses}
"""


def make_authority(home: str, *addresses: str) -> Certificates:
    """Create an authority on the head, and the head's own certificate for its addresses."""
    with _workshop("stoker cluster") as folder:
        _openssl(folder, "req", "-new", *_NEW_KEY, "-keyout", "ca.key", "-out", "ca.csr")
        signing = ("-selfsign", "-keyfile", "ca.key", "-extensions", "of_authority")
        _openssl(folder, *_sign("ca.csr", "ca.crt"), *signing)
        key, certificate = _read(folder, "ca.key"), _read(folder, "ca.crt")
    write_file(home, _CA_KEY, key.encode())
    write_file(home, _CA_CERT, certificate.encode())
    key, request = make_request()
    return keep_certificate(home, key, sign_request(home, request, *addresses), certificate)


def find_authority(home: str) -> str | None:
    """Return the certificate of the authority whose key this box has; None if it has none."""
    if not os.path.exists(os.path.join(folder_of(home), _CA_KEY)):
        return None
    return _read(folder_of(home), _CA_CERT)


def make_request() -> tuple[str, str]:
    """Create a key, and a certificate request for it."""
    with _workshop("stoker node") as folder:
        _openssl(folder, "req", "-new", *_NEW_KEY, "-keyout", "node.key", "-out", "node.csr")
        return _read(folder, "node.key"), _read(folder, "node.csr")


def sign_request(home: str, request: str, *addresses: str) -> str:
    """Sign a certificate for the box at these addresses with this box's authority."""
    with _workshop("stoker node", *addresses) as folder:
        with open(os.path.join(folder, "node.csr"), "w", encoding="ascii") as file:
            file.write(request)
        known = folder_of(home)
        signing = ("-cert", os.path.join(known, _CA_CERT), "-keyfile", os.path.join(known, _CA_KEY))
        _openssl(folder, *_sign("node.csr", "node.crt"), *signing, "-extensions", "of_node")
        return _read(folder, "node.crt")


def keep_certificate(home: str, key: str, certificate: str, authority: str) -> Certificates:
    """Save the certificate of this box. Returns the paths of its files."""
    write_file(home, _NODE_KEY, key.encode())
    write_file(home, _NODE_CERT, certificate.encode())
    write_file(home, _CA_CERT, authority.encode())
    names = {"cert": _NODE_CERT, "key": _NODE_KEY, "ca": _CA_CERT}
    return Certificates(
        **{field: os.path.join(folder_of(home), name) for field, name in names.items()}
    )


def forget_authority(home: str) -> None:
    """Remove all files that this module writes."""
    for name in (_CA_KEY, _CA_CERT, _NODE_KEY, _NODE_CERT):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder_of(home), name))


@contextlib.contextmanager
def _workshop(name: str, *addresses: str) -> Iterator[str]:
    """Private temporary folder with openssl's configuration; removed at the end."""
    listed = ",".join(f"IP:{ipaddress.ip_address(each)}" for each in addresses or ("127.0.0.1",))
    with tempfile.TemporaryDirectory(prefix="stoker-tls-") as folder:
        with open(os.path.join(folder, "config"), "w", encoding="ascii") as file:
            file.write(_CONFIG.format(name=name, addresses=listed))
        with open(os.path.join(folder, "index"), "w", encoding="ascii"):
            pass
        yield folder


def _sign(request: str, certificate: str) -> list[str]:
    return ["ca", "-batch", "-notext", *_DATES, "-in", request, "-out", certificate]


def _read(folder: str, name: str) -> str:
    with open(os.path.join(folder, name), encoding="ascii") as file:
        return file.read()


def _openssl(folder: str, *words: str) -> None:
    command = ["openssl", words[0], "-config", "config", *words[1:]]
    try:
        subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except FileNotFoundError:
        raise StokerError(
            "openssl is missing, which makes the certificates of the cluster: apt-get install openssl"
        ) from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no reason"])[-1]
        raise StokerError(f"openssl cannot make a certificate: {last[:300]}") from None
    except subprocess.TimeoutExpired:
        raise StokerError(f"openssl made no certificate within {_TIMEOUT_S:.0f}s") from None
