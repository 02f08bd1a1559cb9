"""Certificates for the hosts of a hosts, made with openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


class Authority:
    """A certificate authority in a folder; it signs certificates for addresses."""

    def __init__(self, folder: Path, name: str = "lab") -> None:
        self._folder = folder
        self._key, self.certificate = folder / f"{name}.key", folder / f"{name}.crt"
        self._openssl(
            *("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}"),
            *("-keyout", self._key, "-out", self.certificate),
        )

    def environment(self, address: str, *, days: int = 2) -> dict[str, str]:
        """Ray's variables for a host, with a new certificate for its address."""
        base = self._folder / f"{self.certificate.stem}-{address}-{days}"
        key, request, signed = (
            base.with_name(f"{base.name}.{end}") for end in ("key", "csr", "crt")
        )
        extension = base.with_name(f"{base.name}.ext")
        extension.write_text(f"subjectAltName=IP:{address}\n")
        self._openssl("req", *_NEW_KEY, "-subj", "/CN=node", "-keyout", key, "-out", request)
        self._openssl(
            *("x509", "-req", "-days", str(days), "-in", request, "-out", signed),
            *("-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial"),
            *("-extfile", extension),
        )
        return {
            "RAY_USE_TLS": "1",
            "RAY_TLS_SERVER_CERT": str(signed),
            "RAY_TLS_SERVER_KEY": str(key),
            "RAY_TLS_CA_CERT": str(self.certificate),
        }

    @staticmethod
    def _openssl(*words: str | Path) -> None:
        ended = subprocess.run(["openssl", *words], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
