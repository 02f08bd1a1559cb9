"""`stoker web`: opens or closes the web page, and prints its link."""

from __future__ import annotations

import os
import socket
import sys

from stoker.cli.arguments import Args, arg
from stoker.client.client import Client
from stoker.errors import StokerError, UsageError
from stoker.wire import WebOrder, WebPlace

SUMMARY = """\
Open the queue's web page, and print the link to it. The daemon serves it on this machine alone
(127.0.0.1), to all who have the link: the token in it is as good as your login. The page stays open until
stoker web --close, and open tabs come back after a restart of the daemon. Links end with the daemon that
made them: run stoker web again for a new one."""
EXAMPLES = """\
  stoker web                 open the page, print its link
  stoker web --port 8080     open it at a port of your choice, or move it there
  stoker web --new-token     refuse older links
  stoker web --close         close it
  stoker web --host none     no TCP port: only a unix socket, for ssh -L from your computer
  stoker web --host lab1     on a network of people you trust: what is sent is not encrypted
"""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "::")  # noqa: S104 - only compared
_NO_HOST = "none"
_MAX_PORT = 65535
_MAX_PATH_BYTES = 107  # of a unix socket that ssh can open

ARGUMENTS = (
    arg(
        "--port",
        type=int,
        metavar="N",
        help="the port to listen at; default: as before, or your own (20000 and the end of your uid)",
    ),
    arg(
        "--host",
        metavar="ADDRESS",
        help="the address to listen at, or none; default: this machine alone",
    ),
    arg("--new-token", action="store_true", help="make a new token: older links end"),
    arg("--close", action="store_true", help="close the page"),
)


def run(args: Args) -> int:
    """Open the page, or close it."""
    if args.port is not None and not 1 <= args.port <= _MAX_PORT:
        raise UsageError(f"--port {args.port}: a port is a number from 1 to {_MAX_PORT}")
    if args.close and (args.port or args.host or args.new_token):
        raise UsageError("--close takes no other option")
    with Client(start=not args.close) as client:
        if args.close:
            client.web(WebOrder(action="close"))
            print("the page is closed")
            return 0
        page = client.web(
            WebOrder(action="open", host=args.host, port=args.port, new_token=args.new_token)
        )
    assert page is not None
    _print_link(page)
    return 0


def _print_link(page: WebPlace) -> None:
    token = _read_token(page.token_file)
    if page.host != _NO_HOST:
        from stoker.web.check import check_listener

        # A link must not lead to another program that listens there.
        check_listener(_LOOPBACK[0] if page.host in _ANY else page.host, page.port, token)
    print(f"http://{_name_of(page.host)}:{page.port}/#token={token}", flush=True)
    write, host = sys.stderr.write, socket.gethostname()
    if page.host in _LOOPBACK:
        write(
            f"From another computer, run there first: ssh -L {page.port}:127.0.0.1:{page.port} {host}\n"
        )
    elif page.host != _NO_HOST:
        write("stoker: what the page sends is not encrypted: use it on a network that you trust\n")
    if page.host in (*_LOOPBACK, _NO_HOST) and len(os.fsencode(page.socket)) <= _MAX_PATH_BYTES:
        when = (
            "First run on your own computer"
            if page.host == _NO_HOST
            else "Where others log in too, rather"
        )
        write(f"{when}: ssh -L {page.port}:{page.socket} {host}\n")
    write("Keep the link to yourself. stoker web --close closes the page.\n")


def _read_token(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.readline().strip()
    except OSError as error:
        raise StokerError(f"cannot read the token: {error}") from None


def _name_of(host: str) -> str:
    """Return an address as it stands in a link."""
    if host == _NO_HOST:
        return _LOOPBACK[0]
    if host in _ANY:
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
