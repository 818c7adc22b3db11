# SPDX-License-Identifier: MIT
"""A headless Chromium, driven by its DevTools protocol over a pipe: nothing but the standard library."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find():
    """Path of a Chromium, or None."""
    named = os.environ.get("RVL_CHROMIUM")
    return named or next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    def __init__(self, path, width=1280, height=1100):
        to_browser, from_us = os.pipe()
        to_us, from_browser = os.pipe()
        self.profile = tempfile.mkdtemp(prefix="reveille-chromium-")

        def connect():
            # The protocol's pipe is on 3 and 4; copies out of the way first, as they may be either.
            reading, writing = os.dup(to_browser), os.dup(from_browser)
            high_reading, high_writing = os.dup2(reading, 60), os.dup2(writing, 61)
            os.dup2(high_reading, 3)
            os.dup2(high_writing, 4)

        self.process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--no-first-run", "--disable-extensions", "--disable-background-networking",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.profile}",
             f"--window-size={width},{height}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=connect)
        os.close(to_browser)
        os.close(from_browser)
        self.writing, self.reading = from_us, to_us
        self.buffer = b""
        self.number = 0
        self.session = None
        self.problems = []   # console errors and exceptions
        self.requests = []   # what was loaded
        target = self.call("Target.createTarget", url="about:blank")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(width, height)

    def receive(self, timeout):
        while b"\0" not in self.buffer:
            if not select.select([self.reading], [], [], timeout)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.reading, 1 << 16)
            if not piece:
                raise EOFError("the browser has gone")
            self.buffer += piece
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.problems.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.problems.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        return method

    def call(self, method, timeout=120, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive(timeout)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.note(answer)

    def open(self, url):
        """Seconds until the page was loaded and drawn."""
        begun = time.monotonic()
        self.call("Page.navigate", url=url)
        while self.note(self.receive(120)) != "Page.loadEventFired":
            pass
        self.settle()
        return time.monotonic() - begun

    def settle(self):
        """Waits until two more frames were drawn."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, condition, what, timeout=10):
        """Until an expression is true."""
        end = time.monotonic() + timeout
        while not self.run(condition):
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not within {timeout} s: {condition}")
            self.settle()

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def resize(self, width, height=1100):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def key(self, key, shift=False):
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 if shift else 0,
                      **(text if kind == "keyDown" else {}))
        self.settle()

    def media(self, medium="", dark=False):
        self.call("Emulation.setEmulatedMedia", media=medium, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.settle()

    def picture(self, **more):
        """A PNG of the whole page, or of a part."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, **more)["data"])

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(self.picture())

    def close(self):
        try:
            self.session = None
            self.call("Browser.close", timeout=10)
        except (OSError, EOFError, TimeoutError, RuntimeError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)
