"""The picture of the report in the README: a screenshot by a headless Chromium.

    python -m dev.demo.screenshot demo-out/report.html docs/report.png

Chromium (or Chrome) must be installed; Debian and Ubuntu have it as `apt install chromium`. The
picture shows the top of the page. It is reduced to a palette, because a page of text and flat
colours needs few of them: the README stays light.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

#: Programs that take the same options, in the order in which they are tried.
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_TIMEOUT_S = 120
#: Largest picture that the repository accepts, bytes.
_MAX_BYTES = 150_000


def screenshot(page: Path, out: Path, width: int, height: int, browser: str) -> int:
    """Write the top of a page as a PNG.

    Args:
        page: An HTML file that needs nothing but itself.
        out: The PNG.
        width: Width of the window, CSS pixels.
        height: Height of the picture, CSS pixels.
        browser: Path of the browser.

    Returns:
        The size of the PNG in bytes.

    Raises:
        subprocess.CalledProcessError: the browser failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder, "shot.png")
        command = [
            browser,
            "--headless",
            "--no-sandbox",  # a root user in a container has no sandbox; the page is our own
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--force-device-scale-factor=1",
            f"--user-data-dir={folder}/profile",
            f"--window-size={width},{height}",
            f"--screenshot={shot}",
            page.resolve().as_uri(),
        ]
        subprocess.run(command, check=True, timeout=_TIMEOUT_S, capture_output=True)
        with Image.open(shot) as picture:
            flat = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        flat.save(out, optimize=True)
    return out.stat().st_size


def main() -> int:
    """Take the screenshot that the command line names; 1 if the result is too large."""
    parser = argparse.ArgumentParser(prog="python -m dev.demo.screenshot", description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1240)
    parser.add_argument("--height", type=int, default=870)
    asked = parser.parse_args()
    browser = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        print(f"none of {', '.join(_BROWSERS)} is installed: apt install chromium", file=sys.stderr)
        return 2
    size = screenshot(asked.page, asked.out, asked.width, asked.height, browser)
    print(f"{asked.out}: {size} bytes")
    return int(size > _MAX_BYTES)


if __name__ == "__main__":
    sys.exit(main())
