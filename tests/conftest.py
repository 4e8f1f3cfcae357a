"""Shared by all tests: which marks need what, and warnings that are not ours."""

import os
import secrets
import shutil

import pytest
import torch

from dynagat.native import kernels

# Ray reads them when it is imported, and would write a token into the home folder. The last one
# makes it keep 127.0.0.1, as on macOS, instead of an address that other machines can reach.
os.environ.update(
    RAY_AUTH_MODE="token",
    RAY_AUTH_TOKEN=secrets.token_hex(16),
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
)


def pytest_collection_modifyitems(items):
    """`native` and `data` tests skip where there is none, but fail in CI, where that is a bug."""
    if os.environ.get("CI"):
        return
    missing = {}
    if kernels is None:
        missing["native"] = "the native module is not in use here"
    if not os.environ.get("DYNAGAT_DATA"):
        missing["data"] = "DYNAGAT_DATA does not say where the data sets are"
    for item in items:
        for mark in missing.keys() & item.keywords.keys():
            item.add_marker(pytest.mark.skip(reason=missing[mark]))


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def threads():
    """Sets the number of threads; puts it back afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window; where there is none, skip, but fail in CI."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("there is no chromium, but CI must open the page")
        pytest.skip("there is no chromium to open the page with")
    from playwright.sync_api import sync_playwright

    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=quiet)
        yield running
        running.close()


@pytest.fixture
def look_at(browser):
    """Opens a file; afterwards, that no page complained of anything or requests for more."""
    messages, requests, pages = [], [], []

    def open_file(path, width=1280, height=900, scheme="light"):
        view = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
        view.set_default_timeout(10_000)
        view.on("console", lambda message: messages.append(message.text))
        view.on("pageerror", lambda error: messages.append(str(error)))
        view.on("dialog", lambda dialog: messages.append(dialog.message))
        view.on("request", lambda request: requests.append(request.url))
        view.goto(path.as_uri())
        pages.append(view)
        return view

    yield open_file
    for view in pages:
        view.close()
    assert messages == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in requests if url.startswith("file:")]) == len(pages)
