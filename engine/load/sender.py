"""The least that can serve: the bare model loop in a process of its own, which sends each token as it comes.

The same clients as the server's read it, so that their share of the processors is in both measurements.
Knows one kind of request, which it does not read, and has no second thread.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from engine.load.bare import decode
from engine.runner import Runner, Threads

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def main(path: Path, rows: int, tokens: int, prompt_tokens: int) -> None:
    """Answer `rows` requests at once with `tokens` tokens each, until the process is ended."""
    runner = Runner(path, threads=Threads(1, 1))
    with socket.create_server(("127.0.0.1", 0), backlog=rows) as listening:
        print(f"at http://127.0.0.1:{listening.getsockname()[1]}/v1", file=sys.stderr, flush=True)
        while True:
            clients = [_accept(listening) for _ in range(rows)]

            def send(chosen: Sequence[int], clients: list[socket.socket] = clients) -> None:
                for client, token in zip(clients, chosen, strict=True):
                    client.sendall(_part(_event(token)))

            decode(runner, rows, tokens, prompt_tokens, send)
            for client in clients:
                client.sendall(_part(_event(None)) + _part(b"[DONE]") + b"0\r\n\r\n")
                client.close()


def _accept(listening: socket.socket) -> socket.socket:
    """A client whose request has come, and was told that an answer follows."""
    client, _ = listening.accept()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with client.makefile("rb") as request:
        request.read(_length(request))
    client.sendall(HEAD)
    return client


def _length(request: BinaryIO) -> int:
    found = 0
    while (line := request.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        found = int(value) if name.lower() == b"content-length" else found
    return found


def _event(token: int | None) -> bytes:
    """What the server's chunk of a chat has, at its length; None ends the answer."""
    delta: dict[str, Any] = {} if token is None else {"content": "river"}
    finish = "length" if token is None else None
    ids = [] if token is None else [token]
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": ids}
    head = {"id": "chatcmpl-" + 32 * "0", "object": "chat.completion.chunk", "created": 1_700_000_000}
    names = {"model": "the-bare-model", "system_fingerprint": "none"}
    found: bytes = msgspec.json.encode({**head, **names, "choices": [choice]})
    return found


def _part(data: bytes) -> bytes:
    frame = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(frame), frame)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
