"""Who reaches the viewer, what it refuses, and how it ends."""

import http.client
import os
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from robots import PANDA

pytest.importorskip("viser", reason="the extra `view` is not installed")
from viewer_pages import path_of, world_of
from warp_collision.viewer import Viewer
from warp_collision.viewer.browser import free_port
from warp_collision.viewer.origin import is_loopback, is_own_origin, require_foreign_refused


def test_no_file_of_the_user_is_served(viewer, tmp_path):
    assert is_loopback("127.0.0.1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    host, port = viewer.url.removeprefix("http://").split(":")
    up = "../" * 12
    for target in (f"/{up}etc/passwd", "//etc/passwd", "/%2e%2e/" * 9 + "etc/passwd"):
        connection = http.client.HTTPConnection(host, int(port), timeout=60)
        connection.request("GET", target)
        reply = connection.getresponse()
        assert b"root:" not in reply.read()
        connection.close()


def handshake(viewer: Viewer, origin: str | None, host: str = "") -> int:
    """The status that a WebSocket of a page of an origin gets: 101 is a connection."""
    own = viewer.url.removeprefix("http://")
    connection = http.client.HTTPConnection(own, timeout=60)
    headers = {
        "Host": host or own, "Connection": "Upgrade", "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol": "viser-v1.1.1",
    }  # fmt: skip
    connection.request("GET", "/", headers=headers | ({"Origin": origin} if origin else {}))
    status = connection.getresponse().status
    connection.close()
    return status


def test_pages_of_other_sites_are_refused(panda):
    with Viewer(world_of(), panda, port=0, origins=["https://hub.example"]) as viewer:
        own = viewer.url
        assert handshake(viewer, "http://evil.example") == 403
        assert handshake(viewer, "null") == 403
        port = own.rpartition(":")[2]
        assert handshake(viewer, f"http://127.0.0.1:{int(port) % 65535 + 1}") == 403
        # A name server may say that a name is this machine.
        assert handshake(viewer, f"http://evil.example:{port}", f"evil.example:{port}") == 403
        for origin in (own, None, "https://hub.example"):
            assert handshake(viewer, origin) == 101
        tunnel = "localhost:9999"  # as ssh -L makes one
        assert handshake(viewer, f"http://{tunnel}", tunnel) == 101


def test_origins():
    assert is_own_origin("http://[::1]:8080", "[::1]:8080")
    assert is_own_origin("http://robot-pc:8080", "robot-pc:8080", {"robot-pc"})
    assert not is_own_origin("http://robot-pc:8080", "robot-pc:8080")
    assert not is_own_origin("", "127.0.0.1:8080")
    assert not is_own_origin("http://[::1", "[::1")
    assert not is_own_origin("http://127.0.0.1:8080, http://evil.example", "127.0.0.1:8080")


def test_a_viser_that_cannot_refuse_foreign_pages_is_an_error(monkeypatch):
    import viser

    with Viewer(port=0) as viewer:
        require_foreign_refused("127.0.0.1", int(viewer.url.rpartition(":")[2]))
    made = []
    monkeypatch.setattr(
        "warp_collision.viewer.origin._refusing_foreign", lambda answer, allowed: answer
    )
    monkeypatch.setattr(viser, "ViserServer", noted_calls(viser.ViserServer, made))
    with pytest.raises(RuntimeError, match=r"must refuse pages of other sites, and viser \d"):
        Viewer(port=0)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", made[0].get_port()), timeout=5)


def noted_calls(function, results: list):
    def call(*args, **options):
        results.append(function(*args, **options))
        return results[-1]

    return call


RAISES = """
import threading, time, torch
from warp_collision import Cuboid, MeshWorld
from warp_collision.examples import load_panda
from warp_collision.viewer import Viewer

world = MeshWorld(device="cpu")
world.add("box", Cuboid((0.1, 0.1, 0.1)), (0.7, 0, 0.5, 1, 0, 0, 0))
viewer = Viewer(world, load_panda(), port=0)
assert viewer.wait(120)
begun = threading.Event()

def draw():  # in torch most of the time, as drawing is
    begun.set()
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        torch.rand(400, 400) @ torch.rand(400, 400)

viewer.put("long", draw)
begun.wait()
raise RuntimeError("of the script")
"""


@pytest.mark.slow
def test_a_script_that_raises_while_the_viewer_draws_ends_as_others_do():
    found = subprocess.run(
        [sys.executable, "-c", RAISES], capture_output=True, text=True, timeout=120, check=False
    )
    assert found.returncode == 1, found.stderr
    assert found.stderr.splitlines()[-1] == "RuntimeError: of the script"


def test_another_host_is_told(capsys):
    with Viewer(host="0.0.0.0", port=0):
        assert "can be reached from other machines" in capsys.readouterr().err
    with Viewer(port=0):
        found = capsys.readouterr()
        assert (found.out, found.err) == ("", "")


def test_a_port_in_use_and_wrong_arguments(panda, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"port must be free, got {port} of '127.0.0.1'"):
            Viewer(port=port)
    with pytest.raises(OSError, match=r"port must be free, got \d+ of 'no.such.host'"):
        Viewer(host="no.such.host", port=8093)
    with pytest.raises(ValueError, match="port must be from 0 to 65535, got 70000"):
        free_port("127.0.0.1", 70000)
    with pytest.raises(TypeError, match="world must be a MeshWorld, got int"):
        Viewer(3, port=0)
    with Viewer(world_of(), panda, port=0) as viewer:
        with pytest.raises(ValueError, match="joints must have shape"):
            viewer.update([0.0, 1.0])
        with pytest.raises(ValueError, match="joints must be finite"):
            viewer.update([float("nan")] * 7)
        with pytest.raises(ValueError, match="joints must be finite"):
            viewer.add_paths(torch.full((1, 3, 7), torch.inf))
        with pytest.raises(ValueError, match="name must be one of 'plate'"):
            viewer.select("plat")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'warp-collision\[view\]'"):
        Viewer(port=0)


@pytest.mark.slow
def test_the_command_serves_and_ends(tmp_path):
    world, path = tmp_path / "w.yaml", tmp_path / "p.npy"
    world.write_text("cuboid: {top: {dims: [0.4, 0.4, 0.1], pose: [0.6, 0, 0.2, 1, 0, 0, 0]}}")
    np.save(path, path_of(4).numpy())
    command = [
        *(sys.executable, "-m", "warp_collision.cli", "view", str(world), str(path)),
        *("--robot", str(PANDA), "--port", "0", "--no-browser"),
    ]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment) as running:  # fmt: skip
        assert running.stdout is not None
        line = running.stdout.readline()
        url = line.split()[0] if line.strip() else ""
        try:
            assert url.startswith("http://127.0.0.1:"), line
            connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
            connection.request("GET", "/")
            with connection.getresponse() as reply:
                assert reply.status == 200
                assert b"<html" in reply.read()
            connection.close()
        finally:
            running.terminate()
            ending = threading.Timer(60.0, running.kill)  # or a failure would wait without end
            ending.start()
            errors = running.communicate()[1]
            ending.cancel()
        assert running.returncode == 0, errors
        assert "Traceback" not in errors
