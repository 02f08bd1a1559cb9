"""Sessions of the page: opens them for tabs that know a secret, and checks signed requests."""

from __future__ import annotations

from stoker.web import messages
from stoker.web.handshake import (
    Authorization,
    Session,
    is_same,
    new_nonce,
    page_proof,
    server_proof,
)
from stoker.web.token import Secrets


class Sessions:
    """Open sessions. A tab proves that it knows the token, or the handover secret of the last daemon."""

    def __init__(self, secrets: Secrets, handed_over: str | None) -> None:
        self._secrets = secrets
        self._handed_over = handed_over
        self._open: dict[str, Session] = {}

    def challenge(self, page_nonce: str) -> messages.Challenge:
        """Return the daemon's proof, and a nonce for the tab's proof."""
        nonce, before = new_nonce(), self._handed_over
        return messages.Challenge(
            nonce,
            server_proof(self._secrets.token, page_nonce, nonce),
            None if before is None else server_proof(before, page_nonce, nonce),
        )

    def open(self, page_nonce: str, nonce: str, proof: messages.Prove) -> Session | None:
        """Open a session for a tab whose proof is right; None if it is wrong."""
        secret = self._secrets.token if proof.by == "token" else self._handed_over
        if secret is None or not is_same(proof.proof, page_proof(secret, page_nonce, nonce)):
            return None
        session = Session(secret, page_nonce, nonce)
        self._open[session.id] = session
        return session

    def close(self, session: Session) -> None:
        """Close a session; its requests are refused from now on."""
        self._open.pop(session.id, None)

    def welcome(
        self, session: Session, by: str, version: str, host: str, home: str
    ) -> messages.Welcome:
        """Return the welcome for a session; a tab that used the handover secret gets the new token."""
        handover = session.hide("handover", self._secrets.handover)
        token = session.hide("token", self._secrets.token) if by == "handover" else None
        return messages.Welcome(version, host, home, handover, token)

    def find_request(self, method: str, target: str, header: str) -> Authorization | None:
        """Return the parsed Authorization header; None unless an open session signed this request."""
        try:
            authorization = Authorization(header)
        except ValueError:
            return None
        session = self._open.get(authorization.session)
        if session is None or not session.accept_request(method, target, authorization):
            return None
        return authorization
