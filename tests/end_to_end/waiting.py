"""How a test waits."""

import threading
import time


def wait_for(condition, seconds, what):
    """The first true value of `condition`, asked again and again until `seconds` have passed."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {seconds} s: {what() if callable(what) else what}")
        pause.wait(0.02)
