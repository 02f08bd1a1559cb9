"""`stoker web`: opens the page that shows and steers the queue."""

from __future__ import annotations

import socket
import sys
from typing import TYPE_CHECKING

from stoker.client.client import Client
from stoker.errors import StokerError, UsageError
from stoker.wire import WebOrder, WebPlace

if TYPE_CHECKING:
    import argparse

SUMMARY = """\
Open the queue's web page, and print the link to it. It is served by the daemon, on this machine alone
(127.0.0.1), to whoever has the link: the token in it is as good as your login. The page stays open, also
over a restart of the daemon, until stoker web --close."""
EXAMPLES = """\
examples:
  stoker web                 open the page, print its link
  stoker web --port 8080     at a port of your choice
  stoker web --new-token     let nobody in who has an older link
  stoker web --close         close it
  stoker web --host lab1     on a network of people you trust: what is sent is not encrypted
"""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_MAX_PORT = 65535


def configure(parser: argparse.ArgumentParser) -> None:
    """Add what this verb takes."""
    add = parser.add_argument
    add("--port", type=int, metavar="N", help="the port to listen at; default: as before, or 7865")
    add("--host", metavar="ADDRESS", help="the address to listen at; default: this machine alone")
    add("--new-token", action="store_true", help="make a new token: older links end")
    add("--close", action="store_true", help="close the page")


def run(args: argparse.Namespace) -> int:
    """Open the page, or close it."""
    if args.port is not None and not 1 <= args.port <= _MAX_PORT:
        raise UsageError(f"--port {args.port}: a port is a number from 1 to {_MAX_PORT}")
    if args.close and (args.port or args.host or args.new_token):
        raise UsageError("--close stands alone")
    with Client(start=not args.close) as client:
        if args.close:
            client.web(WebOrder(action="close"))
            print("the page is closed")
            return 0
        place = client.web(
            WebOrder(action="open", host=args.host, port=args.port, new_token=args.new_token)
        )
    assert place is not None
    _tell(place)
    return 0


def _tell(place: WebPlace) -> None:
    try:
        with open(place.token_file, encoding="ascii") as file:
            token = file.read().strip()
    except OSError as error:
        raise StokerError(f"cannot read the token: {error}") from None
    here = place.host in _LOOPBACK
    name = "127.0.0.1" if here else place.host
    print(f"http://{name}:{place.port}/#token={token}")
    if here:
        host = socket.gethostname()
        sys.stderr.write(
            f"From another computer, run there first: ssh -L {place.port}:127.0.0.1:{place.port} {host}\n"
        )
    else:
        sys.stderr.write(
            "stoker: what the page sends is not encrypted: use it on a network that you trust\n"
        )
    sys.stderr.write("Keep the link to yourself. stoker web --close closes the page.\n")
