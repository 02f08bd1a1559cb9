"""`python -m stoker.notify`: sends one message; reads where and what from its input, not its arguments."""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Send the message through Apprise; 1 if that is not installed or nobody took it."""
    message = json.load(sys.stdin)
    try:
        import apprise
    except ImportError:
        sys.stderr.write("notifications need Apprise: pip install 'stoker[notify]'\n")
        return 1
    sender = apprise.Apprise()
    if not sender.add(message["url"]):
        sys.stderr.write("the address is none that Apprise knows: stoker config notify\n")
        return 1
    if not sender.notify(title=message["title"], body=message["body"]):
        sys.stderr.write("the message was not taken\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
