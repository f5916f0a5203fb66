"""The built book over http on this machine, compressed as a web server would send it."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import BinaryIO

COMPRESSED = frozenset({".html", ".css", ".js", ".svg", ".json", ".map"})


@lru_cache(maxsize=512)
def _packed(path: Path, changed_ns: int) -> bytes:
    return gzip.compress(path.read_bytes(), 6)


class Handler(SimpleHTTPRequestHandler):
    """Files of one folder, gzipped where they are text, kept by the browser for a year."""

    protocol_version = "HTTP/1.1"

    def send_head(self) -> BinaryIO | BytesIO | None:
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if not path.is_file() or path.suffix not in COMPRESSED:
            return super().send_head()
        body = _packed(path, path.stat().st_mtime_ns)
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "public, max-age=31536000")
        self.end_headers()
        return BytesIO(body)

    def log_message(self, *_: object) -> None:
        """A request is no news."""


@contextmanager
def served(
    folder: Path, handler: type[SimpleHTTPRequestHandler] = Handler, port: int = 0
) -> Iterator[str]:
    """Serve a folder while the block runs; gives its address, without a slash at the end."""
    to_folder = partial(handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", port), to_folder) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
