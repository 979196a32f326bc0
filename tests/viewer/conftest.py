"""The viewer, and a headless Chromium."""

import shutil

import pytest

from warp_collision.examples import load_panda

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
ARGUMENTS = [
    "--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist",
]  # fmt: skip


@pytest.fixture(scope="module")
def panda():
    return load_panda()


@pytest.fixture
def viewer(panda):
    from viewer_pages import world_of
    from warp_collision.viewer import Viewer

    with Viewer(world_of(), panda, port=0) as found:
        yield found


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
