"""A report in a real browser that reaches no network: nothing is repaired, missing or blank."""

import os
import shutil
import signal
import subprocess

import numpy as np
import pytest
from matplotlib.image import imread
from report_samples import Page, sample

from maxmargin.report.page import write_report

BROWSERS = "chromium", "chromium-browser", "google-chrome"
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)

pytestmark = pytest.mark.skipif(
    BROWSER is None,
    reason=f"no browser: none of {', '.join(BROWSERS)} was found (apt-get install chromium)",
)

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",  # no name means anything
    "--proxy-server=127.0.0.1:9",  # where nobody listens
    "--enable-logging=stderr",
)
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A page with most kinds of sections."""
    one = sample("tagger")
    path = tmp_path_factory.mktemp("browser") / "tagger.html"
    return write_report(one.estimator, path, one.X, one.y, **one.options)


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    one = sample("labelled dependencies")
    path = tmp_path_factory.mktemp("browser") / "arcs.html"
    return write_report(one.estimator, path, one.X, one.y)


def browse(page, folder, *flags):
    """What the browser writes, and what its console says."""
    command = [BROWSER, *FLAGS, f"--user-data-dir={folder / 'profile'}", *flags, page.as_uri()]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # with all its helpers, so that they end together
    ) as process:
        try:
            written, said = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, said
    return written, [line for line in said.splitlines() if "CONSOLE" in line]


def screenshot(page, folder, size, *flags):
    """Pixels of the window, with values from 0 to 1."""
    picture = folder / "screenshot.png"
    width, height = size
    flags = *flags, f"--window-size={width},{height}", f"--screenshot={picture}"
    _, complaints = browse(page, folder, *flags)
    assert not complaints
    pixels = imread(picture)[..., :3]
    assert pixels.shape[:2] == (height, width)
    return pixels


@pytest.mark.parametrize("which", ["page", "trees"])
def test_the_browser_sees_the_page_as_it_was_written(which, request, tmp_path):
    path = request.getfixturevalue(which)
    seen, complaints = browse(path, tmp_path, "--dump-dom")
    assert complaints == []
    ours, theirs = Page(path.read_text(encoding="utf-8")), Page(seen)
    assert theirs.elements == ours.elements
    assert "".join(theirs.text.split()) == "".join(ours.text.split())


def test_it_is_dark_ink_on_light_paper_or_the_other_way_round(page, tmp_path):
    light = screenshot(page, tmp_path, (1000, 900)).mean(axis=2)
    dark = screenshot(page, tmp_path, (1000, 900), DARK).mean(axis=2)
    assert np.median(light) > 0.95
    assert np.median(dark) < 0.2
    assert light.min() < 0.3
    assert dark.max() > 0.8
    for pixels in (light, dark):
        paper = np.abs(pixels - np.median(pixels)) < 0.1
        assert 0.02 < 1.0 - paper.mean() < 0.5  # neither blank nor full


def test_it_fits_a_phone(page, tmp_path):
    pixels = screenshot(page, tmp_path, (390, 3000)).mean(axis=2)
    margin = pixels[:, -6:]  # wide tables and drawings scroll inside of the page
    assert margin.min() > 0.95
    assert (pixels[:, 60:-60].min(axis=1) < 0.6).mean() > 0.3
