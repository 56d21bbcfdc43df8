"""A real browser, told what to do by its DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from websockets.sync.client import connect

from tests.patience import LEISURELY
from tests.servers import missing

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
_PATIENCE = 60.0
_TOLD = {"Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown"}
_LEFT = "Inspected target navigated or closed"
"""What the browser answers if the page changes while an expression is evaluated."""
_KEYS = {"Tab": ("Tab", 9, ""), "Enter": ("Enter", 13, "\r"), " ": ("Space", 32, " ")}


class Browser:
    """A browser with one page and an empty profile."""

    def __init__(self) -> None:
        found = next(filter(None, map(shutil.which, NAMES)), None)
        if found is None:
            missing(f"A browser ({' or '.join(NAMES)})")
        assert found is not None
        self._open = ExitStack()
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self._folder = self._open.enter_context(folder)
        self._numbers = itertools.count(1)
        self._session: dict[str, str] = {}
        self.told: list[str] = []
        """The page's console messages, and the browser's refusals."""
        self._process = subprocess.Popen(
            [
                *(found, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--hide-scrollbars", "--no-proxy-server", "--remote-debugging-port=0"),
                *(f"--user-data-dir={self._folder}", "about:blank"),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # What is found may be a script that starts the browser.
        )
        self._open.callback(self._end)
        try:
            port, path = self._listening()
            opening = connect(
                f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None, **LEISURELY
            )
            self._socket = self._open.enter_context(opening)
            target = self._tell("Target.createTarget", url="about:blank")["targetId"]
            attached = self._tell("Target.attachToTarget", targetId=target, flatten=True)
            self._session = {"sessionId": attached["sessionId"]}
            for domain in ("Page", "Runtime", "Log"):
                self._tell(f"{domain}.enable")
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def open(self, url: str) -> None:
        """Go to a page."""
        document = self._tell("Page.navigate", url=url).get("loaderId")
        # The page of before may have the same address, and be asked once more before it goes.
        deadline = time.monotonic() + _PATIENCE
        while document not in {None, self._document()}:
            assert time.monotonic() < deadline, f"it does not go to {url}"
            time.sleep(0.02)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def _document(self) -> str:
        """The id of the document that the page shows."""
        loader: str = self._tell("Page.getFrameTree")["frameTree"]["frame"]["loaderId"]
        return loader

    def run(self, script: str) -> Any:
        """What an expression of JavaScript comes to on the page."""
        answer = self._tell(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str) -> Any:
        """Wait until an expression is true of the page, and give it."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                if value := self.run(script):
                    return value
                text = self.run("document.body?.innerText")
            except AssertionError as problem:
                if _LEFT not in str(problem):
                    raise
                text = _LEFT
            assert time.monotonic() < deadline, f"never: {script}\n{text}\n{self.told}"
            time.sleep(0.02)

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key: Tab, Enter or the space bar."""
        code, number, text = _KEYS[key]
        pressed = {"key": key, "code": code, "windowsVirtualKeyCode": number}
        pressed["modifiers"] = 8 if shift else 0
        self._tell("Input.dispatchKeyEvent", type="keyDown", text=text, **pressed)
        self._tell("Input.dispatchKeyEvent", type="keyUp", **pressed)

    def type(self, text: str) -> None:
        """Type a text where the focus is."""
        self._tell("Input.insertText", text=text)

    def set_cookie(self, name: str, value: str, url: str) -> None:
        """Keep a cookie for a URL."""
        self._tell("Network.setCookie", name=name, value=value, url=url, httpOnly=True)

    def clear_cookies(self) -> None:
        """Forget all cookies."""
        self._tell("Network.clearBrowserCookies")

    def block(self, url: str) -> None:
        """Answer no request for URLs of this pattern, as if the service were away."""
        self._tell("Network.enable")
        self._tell("Network.setBlockedURLs", urls=[url])

    def allow_scripts(self, allowed: bool) -> None:
        """Let pages run scripts, or not, from the next one on."""
        self._tell("Emulation.setScriptExecutionDisabled", value=not allowed)

    def allow_clipboard(self, origin: str) -> None:
        """Let the pages of an origin write and read the clipboard, as if the window had focus."""
        permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
        self._tell("Browser.grantPermissions", permissions=permissions, origin=origin)
        self._tell("Emulation.setFocusEmulationEnabled", enabled=True)

    def show_at(self, width: int, *, dark: bool = False, height: int = 900) -> None:
        """Give pages a width in pixels, and a light or dark colour scheme."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._tell("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._tell("Emulation.setDeviceMetricsOverride", **size)

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        shot = self._tell("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _listening(self) -> list[str]:
        """The port and the path at which it takes commands."""
        file, deadline = Path(self._folder, "DevToolsActivePort"), time.monotonic() + _PATIENCE
        while True:
            lines = file.read_text().splitlines() if file.exists() else []
            if len(lines) == 2:
                return lines
            assert self._process.poll() is None, "the browser ended"
            assert time.monotonic() < deadline, "the browser does not listen"
            time.sleep(0.02)

    def _tell(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(
            json.dumps({"id": number, "method": method, "params": params, **self._session})
        )
        while True:
            heard = json.loads(self._socket.recv(timeout=_PATIENCE))
            if heard.get("method") in _TOLD:
                self.told.append(json.dumps(heard["params"]))
            if heard.get("id") == number:
                assert "error" not in heard, heard
                result: dict[str, Any] = heard["result"]
                return result

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
