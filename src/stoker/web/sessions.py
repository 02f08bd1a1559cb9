"""The sessions of a page: who has proved to know its secrets, and which requests are theirs."""

from __future__ import annotations

from stoker.web import messages
from stoker.web.handshake import (
    Session,
    Words,
    is_same,
    new_nonce,
    page_proof,
    server_proof,
)
from stoker.web.token import Secrets


class Sessions:
    """Lets in who proves to know the token, or what the page before has handed over to open tabs."""

    def __init__(self, secrets: Secrets, handed_over: str | None) -> None:
        self._secrets = secrets
        self._handed_over = handed_over
        self._open: dict[str, Session] = {}

    def challenge(self, page_nonce: str) -> messages.Challenge:
        """Prove to a page that this is the daemon, and ask for its proof."""
        nonce, before = new_nonce(), self._handed_over
        return messages.Challenge(
            nonce,
            server_proof(self._secrets.token, page_nonce, nonce),
            None if before is None else server_proof(before, page_nonce, nonce),
        )

    def open(self, page_nonce: str, nonce: str, said: messages.Prove) -> Session | None:
        """The session of a page whose proof is right; None if it is wrong."""
        secret = self._secrets.token if said.by == "token" else self._handed_over
        if secret is None or not is_same(said.proof, page_proof(secret, page_nonce, nonce)):
            return None
        session = Session(secret, page_nonce, nonce)
        self._open[session.id] = session
        return session

    def close(self, session: Session) -> None:
        """End a session: its requests are refused from now on."""
        self._open.pop(session.id, None)

    def welcome(
        self, session: Session, by: str, version: str, host: str, home: str
    ) -> messages.Welcome:
        """What a page is told that was let in; one that came by handover gets the new token."""
        handover = session.hide("handover", self._secrets.handover)
        token = session.hide("token", self._secrets.token) if by == "handover" else None
        return messages.Welcome(version, host, home, handover, token)

    def find_request(self, method: str, target: str, header: str) -> Words | None:
        """What an Authorization header says, if an open session has signed this very request."""
        try:
            said = Words(header)
        except ValueError:
            return None
        session = self._open.get(said.session)
        if session is None or not session.accept_request(method, target, said):
            return None
        return said
