"""A server of this process on a free local port while a `with` lasts; what it answers is a handler's."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LocalServer(ThreadingHTTPServer):
    """Listens on a free port, or on a given one, as soon as it is made; answers inside the `with`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler: type[BaseHTTPRequestHandler], *, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.base_url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def wait(self) -> None:
        """Until the server ends, which it does not by itself."""
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""
