"""A second user's server at the page's port: it takes whatever a browser sends, and keeps a record."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from security.second_user import SecondUser

# It answers a WebSocket, sends what it was told to send first, and writes down every byte it gets.
_SOURCE = """
port, record, greeting, address = int(sys.argv[3]), *sys.argv[4:]

def frame(data):
    size = bytes([len(data)]) if len(data) < 126 else bytes([126]) + struct.pack("!H", len(data))
    return bytes([0x81]) + size + data

def unmask(data):
    texts = b""
    while len(data) >= 6:
        size, at = data[1] & 127, 2
        if size == 126:
            size, at = struct.unpack_from("!H", data, 2)[0], 4
        key, body = data[at:at + 4], data[at + 4:at + 4 + size]
        texts += bytes(byte ^ key[index % 4] for index, byte in enumerate(body)) + b"\\n"
        data = data[at + 4 + size:]
    return texts

def note(data):
    with open(record, "ab") as file:
        file.write(data + b"\\n")

def serve(sock):
    data = b""
    while b"\\r\\n\\r\\n" not in data:
        more = sock.recv(65536)
        if not more:
            return
        data += more
    note(data)
    keys = [line for line in data.split(b"\\r\\n") if line.lower().startswith(b"sec-websocket-key")]
    if not keys:
        sock.sendall(b"HTTP/1.1 200 OK\\r\\ncontent-length: 2\\r\\n\\r\\n{}")
        return
    key = keys[0].partition(b":")[2].strip() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    answer = base64.b64encode(hashlib.sha1(key).digest()).decode()
    head = ["HTTP/1.1 101 Switching Protocols", "upgrade: websocket", "connection: Upgrade"]
    head += [f"sec-websocket-accept: {answer}", "", ""]
    sock.sendall("\\r\\n".join(head).encode())
    while True:
        more = sock.recv(65536)
        if not more:
            return
        note(unmask(more))
        sock.sendall(frame(greeting.encode()))

import base64
listening = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listening.bind((address, port))
listening.listen(64)
print("ready", flush=True)
while True:
    connection, _address = listening.accept()
    threading.Thread(target=serve, args=(connection,), daemon=True).start()
"""
GREETING = json.dumps(
    {"type": "challenge", "nonce": "0" * 32, "proof": "0" * 64, "handover": "0" * 64}
)


class Imposter:
    """Listens at a port as the second user, who can write into `folder`."""

    def __init__(
        self,
        user: SecondUser,
        port: int,
        folder: Path,
        greeting: str = GREETING,
        address: str = "127.0.0.1",
    ) -> None:
        self.record = folder / f"record-{port}"
        self.process: subprocess.Popen[str] = user.start_until_ready(
            _SOURCE, str(port), str(self.record), greeting, address
        )

    def heard(self) -> str:
        """All that anybody has sent so far."""
        return self.record.read_text(errors="replace") if self.record.exists() else ""

    def close(self) -> None:
        """Free the port."""
        self.process.kill()
        self.process.wait()
