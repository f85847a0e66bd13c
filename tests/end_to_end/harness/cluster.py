"""A whole Annulus on this machine, for tests and the quickstart: `annulus serve` and what to ask it.

    with cluster.Serve(workers=2) as service:
        done = service.annulus("attend", "--synthetic", "1,64,64,2,2,32,fp32,1", "--verify", "8")

Nothing outlives the with-block, whatever happens in it.
"""

import os
import queue
import re
import signal
import subprocess
import sys
import threading

# The location of the three programs of //:programs, relative to a test's tree or below bazel-bin.
PROGRAMS = os.environ.get("ANNULUS_PROGRAMS", "bin")
CALL_SECONDS = 120
# Flags of a coordinator whose workers are neither suspect nor lost when a busy machine holds them up. One that ends is suspect
# at once, by its stream, and lost in two minutes.
PATIENT = ("--beat-interval=30s", "--lease=2m")
# The beginning of a line of `annulus serve` about a child that ended by itself or with an error.
CHILD_ENDED = "annulus serve: "
# Workers as slow as they can be, for jobs that must run for seconds on any machine.
SLOW = ("--threads", "1", "--worker-flag=--kernel=portable")


class ServeError(Exception):
    """`annulus serve` did not do what it says; carries its log."""


class Serve:
    """A running `annulus serve`. `address` is where it listens.

    Its workers measure themselves for no longer than tests need, which a second and a half of two processors each would slow.
    At the end its exit code must be `expected_code`, and no child may have ended but as `expected_ends` say: a test that ends one
    sets them.
    """

    def __init__(self, workers, *flags, address="127.0.0.1:0", measure_time="20ms", ready_seconds=60, stop_seconds=30):
        self.workers = workers
        self.command = [program(), "serve", "--workers", str(workers), "--address", address]
        self.command += [*(f"--coordinator-flag={flag}" for flag in PATIENT), f"--worker-flag=--measure-time={measure_time}", *flags]
        self.ready_seconds = ready_seconds
        self.stop_seconds = stop_seconds
        self.address = None
        self.expected_code, self.expected_ends = 0, []
        self.lines = queue.Queue()
        self.log = []
        self._threads = []

    def __enter__(self):
        self._process = subprocess.Popen(
            self.command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        out, err = self._process.stdout, self._process.stderr
        for stream, keep in ((out, self.lines.put), (err, self.log.append)):
            thread = threading.Thread(target=self._drain, args=(stream, keep), daemon=True)
            thread.start()
            self._threads.append(thread)
        try:
            self.address = self._await_ready()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _drain(self, stream, keep):
        for line in stream:
            keep(line.rstrip("\n"))
        keep(None)

    def _await_ready(self):
        try:
            line = self.lines.get(timeout=self.ready_seconds)
        except queue.Empty:
            raise ServeError(f"not ready in {self.ready_seconds} s\n{self.tail()}") from None
        match = re.fullmatch(r"ready (\S+:\d+) workers=(\d+)", line or "")
        if match is None or int(match[2]) != self.workers:
            raise ServeError(f"said {line!r} instead of its ready line\n{self.tail()}")
        return match[1]

    def tail(self, count=40):
        """The last lines of its log."""
        return "\n".join(line for line in self.log[-count:] if line is not None)

    @property
    def pid(self):
        return self._process.pid

    def stop(self):
        """Asks it to end as Ctrl-C does; its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            return self._process.wait(timeout=self.stop_seconds)
        except subprocess.TimeoutExpired:
            raise ServeError(f"still runs {self.stop_seconds} s after SIGINT\n{self.tail()}") from None

    def _check_end(self, code):
        ends = [line.removeprefix(CHILD_ENDED) for line in self.log if line and line.startswith(CHILD_ENDED)]
        if (code, ends) != (self.expected_code, self.expected_ends):
            raise ServeError(f"ended with {code}, its children so: {ends}\n{self.tail(200)}")

    def __exit__(self, kind, error, trace):
        try:
            code = self.stop()
        except ServeError:
            if kind is None:
                raise
        finally:
            # Its session holds the coordinator and the workers: none of them is left.
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            for thread in self._threads:
                thread.join(timeout=5)
            if kind is not None:
                print(f"---- log of annulus serve\n{self.tail(200)}", file=sys.stderr)
        if kind is None:
            self._check_end(code)

    def annulus(self, verb, *flags, timeout=CALL_SECONDS):
        """Runs the client program against this service."""
        return annulus(verb, "--address", self.address, *flags, timeout=timeout)


def program(name="annulus"):
    return os.path.abspath(os.path.join(PROGRAMS, name))


def run(name, *arguments, timeout=CALL_SECONDS):
    """Runs one of the programs; stdout, stderr and returncode of the result are text and a number."""
    return subprocess.run([program(name), *arguments], capture_output=True, text=True, timeout=timeout)


def annulus(*arguments, timeout=CALL_SECONDS):
    """run() of the client program."""
    return run("annulus", *arguments, timeout=timeout)
