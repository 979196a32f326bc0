"""A server of the part of Google Cloud Storage's API that `pyarrow.fs` calls, with one bucket."""

import contextlib
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

BUCKET = "data"
_OBJECTS = f"/storage/v1/b/{BUCKET}/o"
_UPLOADS = f"/upload/storage/v1/b/{BUCKET}/o"


class GcsServer(subprocess.Popen):
    """The server in a process of its own, as clients hold Python's lock while they read.

    Attributes:
        port: that it listens at, of this machine alone.
    """

    def __init__(self) -> None:
        super().__init__([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
        assert self.stdout is not None
        self.port = int(self.stdout.readline())

    def __exit__(self, *_: object) -> None:
        self.kill()
        super().__exit__(None, None, None)

    def uri(self, name: str) -> str:
        """The URI of a place in the bucket."""
        where = f"scheme=http&endpoint_override=127.0.0.1:{self.port}"
        return f"gs://anonymous@{BUCKET}/{name}?{where}&retry_limit_seconds=5"


class _Server(ThreadingHTTPServer):
    """Objects in memory: their content and time, by name."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects: dict[str, tuple[bytes, str]] = {}
        self.uploads: dict[str, bytearray] = {}

    def put(self, name: str, content: bytes) -> dict[str, str]:
        """Stores an object; returns what the API says of it."""
        self.objects[name] = content, datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return self.about(name)

    def about(self, name: str) -> dict[str, str]:
        content, written = self.objects[name]
        return {
            "kind": "storage#object",
            "bucket": BUCKET,
            "name": name,
            "size": str(len(content)),
            "timeCreated": written,
            "updated": written,
            "generation": "1",
            "metageneration": "1",
        }


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, content: bytes | dict[str, Any] = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # of a client that has read enough
            self.wfile.write(body)

    def _split(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        options = parse_qs(parts.query, keep_blank_values=True)
        return parts.path, {name: values[0] for name, values in options.items()}

    def do_GET(self) -> None:
        path, options = self._split()
        if path == _OBJECTS:
            prefix = options.get("prefix", "")
            names = [name for name in sorted(self.server.objects) if name.startswith(prefix)]
            cut: dict[str, None] = {}
            if mark := options.get("delimiter"):
                rest = {name: name[len(prefix) :].partition(mark) for name in names}
                cut = {prefix + first + mark: None for first, found, _ in rest.values() if found}
                names = [name for name in names if not rest[name][1]]
            items = [self.server.about(name) for name in names]
            self._answer(200, {"kind": "storage#objects", "items": items, "prefixes": [*cut]})
            return
        is_metadata = path.startswith(f"{_OBJECTS}/") and options.get("alt") != "media"
        name = unquote(path).removeprefix(f"{_OBJECTS}/").removeprefix(f"/{BUCKET}/")
        if name not in self.server.objects:
            self._answer(404)
        elif is_metadata:
            self._answer(200, self.server.about(name))
        else:
            content = self.server.objects[name][0]
            found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if found is None:
                self._answer(200, content, x_goog_generation="1")
                return
            first, last = int(found[1]), min(int(found[2] or len(content)), len(content) - 1)
            span = f"bytes {first}-{last}/{len(content)}"
            part = content[first : last + 1]
            self._answer(206, part, Content_Range=span, x_goog_generation="1")

    def do_POST(self) -> None:
        path, options = self._split()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path != _UPLOADS or options.get("uploadType") != "resumable":
            self._answer(404)
            return
        key = str(len(self.server.uploads))
        self.server.uploads[key] = bytearray()
        host = f"http://127.0.0.1:{self.server.server_port}"
        where = f"{host}{_UPLOADS}?upload_id={key}&name={options['name']}"
        self._answer(200, Location=where)

    def do_PUT(self) -> None:
        _, options = self._split()
        received = self.server.uploads[options["upload_id"]]
        received += self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers["Content-Range"].endswith("/*"):  # more follows
            self._answer(308, Range=f"bytes=0-{len(received) - 1}")
        else:
            self._answer(200, self.server.put(options["name"], bytes(received)))

    def do_DELETE(self) -> None:
        path, _ = self._split()
        known = self.server.objects.pop(unquote(path).removeprefix(f"{_OBJECTS}/"), None)
        self._answer(404 if known is None else 204)


if __name__ == "__main__":
    with _Server() as server:
        print(server.server_port, flush=True)
        server.serve_forever()
