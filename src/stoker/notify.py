"""`python -m stoker.notify`: sends the message that it reads from its input, with Apprise."""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Send the message; 1 if Apprise is missing or does not send it."""
    message = json.load(sys.stdin)
    try:
        import apprise
    except ImportError:
        sys.stderr.write("notifications need Apprise: pip install 'stoker[notify]'\n")
        return 1
    sender = apprise.Apprise()
    if not sender.add(message["url"]):
        sys.stderr.write(
            "Apprise does not know this kind of address: set another with stoker config notify\n"
        )
        return 1
    if not sender.notify(title=message["title"], body=message["body"]):
        sys.stderr.write(
            "the service did not accept the message: check the address with stoker config notify\n"
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
