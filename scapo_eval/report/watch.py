"""Server for a report that is updated whenever its inputs change. The page is accessible only from the same computer
and is rebuilt when a file changes.

The address of the page contains a random token, and the Host header must be a loopback name (to prevent DNS rebinding).
The page can send requests only to its own server, to ask whether the inputs have changed.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from ..base.errors import ScapoError
from ..base.hashes import digest
from ..readers.data_set import files_at

LOOPBACK = "127.0.0.1"
_HOSTS = frozenset({LOOPBACK, "localhost"})


def state_of(paths: Sequence[str | Path]) -> str:
    """Returns a hash of the sizes and modification times of all files, including the files in folders and the files
    that match patterns. The hash also changes if a file is missing.
    """
    states: list[str] = []
    for path in map(Path, paths):
        for file in sorted(path.iterdir()) if path.is_dir() else map(Path, files_at(str(path))):
            try:
                stat = file.stat()
            except OSError:  # between two writes
                continue
            states.append(f"{file}\0{stat.st_size}\0{stat.st_mtime_ns}")
    return digest(states)


class ReportServer(ThreadingHTTPServer):
    """Server for a report page, which runs until it is shut down.

    Args:
        make: Function that creates the page for a given state of the inputs. The page must contain the state of the
            inputs.
        state: Function that returns the current state of the inputs.
        port: Port to listen on, or 0 for any free port.
        failed: Callback that receives the reason if a page cannot be created. If no page can be created, the previous
            page is kept.

    Attributes:
        url: Address of the page, including the token.

    Raises:
        OSError: If the port is in use.
        ScapoError: If the first page cannot be created.
    """

    daemon_threads = True

    def __init__(
        self,
        make: Callable[[str], bytes],
        state: Callable[[], str],
        *,
        port: int = 0,
        failed: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._make, self._state, self._failed = make, state, failed
        self._lock = threading.Lock()
        self._seen = self._shown = state()
        self._page = make(self._seen)
        super().__init__((LOOPBACK, port), _Handler)
        self.token = secrets.token_urlsafe(16)
        self.url = f"http://{LOOPBACK}:{self.server_address[1]}/{self.token}/"

    def page(self) -> bytes:
        """Returns the page for the current inputs. While the inputs are incomplete, the previous page is returned."""
        return self._update()[0]

    def state(self) -> str:
        """Returns the state of the inputs that the current page shows."""
        return self._update()[1]

    def _update(self) -> tuple[bytes, str]:
        """Creates the page if the inputs have changed, and returns the current page and the state that it contains."""
        with self._lock:
            if (now := self._state()) != self._seen:
                self._seen = now
                try:
                    self._page, self._shown = self._make(now), now
                except ScapoError as error:
                    self._failed(str(error))
            return self._page, self._shown


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = cast(ReportServer, self.server)
        host = (self.headers.get("Host") or "").rsplit(":", 1)[0]
        pages = {
            f"/{server.token}/": ("text/html; charset=utf-8", server.page),
            f"/{server.token}/state": ("text/plain; charset=utf-8", lambda: server.state().encode()),
        }
        known = pages.get(self.path)
        if host not in _HOSTS or known is None:
            self.send_error(HTTPStatus.NOT_FOUND if host in _HOSTS else HTTPStatus.FORBIDDEN)
            return
        kind, content = known
        body = content()
        self.send_response(HTTPStatus.OK)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass
