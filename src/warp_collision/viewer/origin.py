"""Which web pages may talk to the viewer: its own, and no other that is open in the browser."""

from __future__ import annotations

import contextlib
import http
import http.client
import ipaddress
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

_SECONDS = 10.0  # of the probe
_FOREIGN = "http://foreign.invalid"  # a name that no page has
_ONE_AT_A_TIME = threading.Lock()


def is_loopback(host: str) -> bool:
    """Whether nothing but this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_own_origin(origin: str | None, requested: str, allowed: Collection[str] = ()) -> bool:
    """Whether a request comes from the viewer's own page, or from a program that is no browser.

    A page of another site names that site as its origin. One whose name leads to this machine by a
    trick of its name server asks for that name: names are own ones only if they are listed.

    Args:
        origin: the header `Origin`; None for a program that is no browser.
        requested: the header `Host`, what the browser asks for.
        allowed: further origins, and further names of this machine.

    Example:
        >>> from warp_collision.viewer.origin import is_own_origin
        >>> is_own_origin("http://127.0.0.1:8080", "127.0.0.1:8080")
        True
        >>> is_own_origin("http://evil.example", "127.0.0.1:8080")
        False
        >>> is_own_origin("http://evil.example:8080", "evil.example:8080")
        False
    """
    if origin is None or origin in allowed:
        return True
    if origin not in (f"http://{requested}", f"https://{requested}"):
        return False
    with contextlib.suppress(ValueError):
        name = urlsplit(origin).hostname or ""
        return name == "localhost" or name in allowed or _is_address(name)
    return False


def _is_address(name: str) -> bool:
    """Whether a host is numbers, which no name server answers for."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def own_pages_alone(host: str, allowed: Collection[str]) -> Iterator[None]:
    """Lets the viser server that is made inside answer foreign pages with status 403.

    viser has no option for it. It starts its server in a thread of its own, by `websockets`.

    Args:
        host: the address that it listens on.
        allowed: further origins whose pages may connect.
    """
    import websockets.asyncio.server as module

    name = socket.gethostname()
    known = {*allowed, host, name, f"{name.partition('.')[0]}.local"}
    with _ONE_AT_A_TIME:
        before, serve = threading.enumerate(), module.serve

        def guarded(*args: Any, **options: Any) -> Any:
            if threading.current_thread() not in before:  # and not another server of this process
                answer = options.get("process_request")
                options["process_request"] = _refusing_foreign(answer, known)
            return serve(*args, **options)

        module.serve = guarded  # type: ignore[assignment]
        try:
            yield
        finally:
            module.serve = serve


def _refusing_foreign(
    answer: Callable[[Any, Any], Any] | None, allowed: Collection[str]
) -> Callable[[Any, Any], Any]:
    """Returns what answers requests: foreign ones are refused, others answered as before."""

    def process(connection: Any, request: Any) -> Any:
        origins, hosts = (request.headers.get_all(name) for name in ("Origin", "Host"))
        origin = ", ".join(origins) if origins else None
        if not is_own_origin(origin, ", ".join(hosts), allowed):
            return connection.respond(
                http.HTTPStatus.FORBIDDEN, "This page may not use the viewer.\n"
            )
        return None if answer is None else answer(connection, request)

    return process


def require_foreign_refused(host: str, port: int) -> None:
    """Requires that a server refuses the WebSocket of a foreign page, by trying it.

    Raises:
        RuntimeError: it does not, as with a viser that starts its server in another way.
    """
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    try:
        connection.request("GET", "/", headers={
            "Origin": _FOREIGN, "Connection": "Upgrade", "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        })  # fmt: skip
        status: object = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        status = error
    finally:
        connection.close()
    if status != http.HTTPStatus.FORBIDDEN:
        from importlib.metadata import version

        raise RuntimeError(
            "the viewer must refuse pages of other sites, and viser "
            f"{version('viser')} does not let it: got {status} instead of 403"
        )
