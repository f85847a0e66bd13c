"""A coordinator and workers started one by one, for tests that stop, kill and replace single processes.

    with processes.Processes(workers=2, worker_flags={"--min-rate-window": "2s"}) as service:
        service.worker(1).kill()

Nothing outlives the with-block. Everyone else uses cluster.Serve.
"""

import queue
import re
import signal
import subprocess
import sys
import threading
import time

from tests.end_to_end.harness import cluster

START_SECONDS = 60
WORKER_DEFAULTS = {
    "--data-address": "127.0.0.1:0",
    "--threads": "1",
    "--staging-bytes": "1GiB",
    "--device-bytes": "1GiB",
    "--measure-time": "5ms",
}


class Process:
    """A program of ours in a session of its own."""

    def __init__(self, name, *flags):
        self.name, self.flags = name, flags
        self.log = []
        self.ended_by_test = False
        self.lines = queue.Queue()
        self._process = subprocess.Popen(
            [cluster.program(name), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for stream, keep in (
            (self._process.stdout, self.lines.put),
            (self._process.stderr, self.log.append),
        ):
            threading.Thread(target=self._drain, args=(stream, keep), daemon=True).start()

    @staticmethod
    def _drain(stream, keep):
        for line in stream:
            keep(line.rstrip("\n"))

    @property
    def pid(self):
        return self._process.pid

    def state(self):
        """The letter of its state in /proc: R, S, T (stopped) …; "" when it has ended."""
        if self._process.poll() is not None:
            return ""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
                return file.read().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return ""

    def resident_kib(self, field="VmRSS"):
        """VmRSS, or VmHWM: the most that it ever was."""
        with open(f"/proc/{self.pid}/status", encoding="utf-8") as file:
            return int(re.search(rf"{field}:\s+(\d+) kB", file.read())[1])

    def crashed(self):
        """Its exit code if it ended without a request."""
        return None if self.ended_by_test else self._process.poll()

    def signal(self, number):
        self.ended_by_test |= number in (signal.SIGKILL, signal.SIGTERM)
        self._process.send_signal(number)

    def kill(self):
        """SIGKILL; returns when the process is gone, killed by that and nothing else."""
        self.signal(signal.SIGKILL)
        code = self._process.wait(timeout=10)
        if code != -signal.SIGKILL:
            raise AssertionError(f"{self.name} had ended before with {code}\n{self.tail()}")

    def pause(self):
        """SIGSTOP; returns when the kernel says that it stands still."""
        self.signal(signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while self.state() != "T":
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} is not stopped but {self.state()!r}")

    def end(self, seconds=30):
        """Asks it to end; its exit code."""
        if self._process.poll() is None:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGTERM)
        return self._process.wait(timeout=seconds)

    def wait(self, seconds=30):
        """Its exit code, when it ends by itself."""
        return self._process.wait(timeout=seconds)

    def destroy(self):
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
            self._process.wait()

    def tail(self, count=60):
        return f"---- {self.name} {' '.join(self.flags)}\n" + "\n".join(self.log[-count:])


class Processes:
    """`address` is the coordinator's; workers have the slots w0, w1, …"""

    def __init__(self, workers, coordinator_flags=cluster.PATIENT, worker_flags=None):
        """`worker_flags`: a dict of flags and values. Without flags of its own the coordinator is patient."""
        self._count = workers
        self._coordinator_flags = coordinator_flags
        self._worker_flags = {**WORKER_DEFAULTS, **(worker_flags or {})}
        self.coordinator, self._workers, self._all = None, {}, []
        self.address = self._control = None

    def __enter__(self):
        try:
            any_port = ("--address", "127.0.0.1:0", "--control-address", "127.0.0.1:0")
            self.coordinator = self._start(
                "annulus-coordinator", *any_port, *self._coordinator_flags
            )
            line = self.coordinator.lines.get(timeout=START_SECONDS)
            found = re.search(r"\baddress=(\S+) control-address=(\S+)", line)
            self.address, self._control = found[1], found[2]
            for rank in range(self._count):
                self.start_worker(rank)
            self.await_workers(self._count)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def _start(self, name, *flags):
        process = Process(name, *flags)
        self._all.append(process)
        return process

    def start_worker(self, number, flags=None):
        """A new process for the slot; `flags` go before those of all."""
        self._workers[number] = self._start(
            "annulus-worker",
            *("--slot", f"w{number}"),
            *(word for flag in {"--coordinator": self._control, **self._worker_flags, **(flags or {})}.items() for word in flag),
        )
        return self._workers[number]

    def worker(self, number):
        return self._workers[number]

    def await_workers(self, count, seconds=START_SECONDS):
        wait = ("--wait", str(count), "--timeout", f"{seconds}s")
        done = self.annulus("cluster", *wait, timeout=seconds + 10)
        if done.returncode != 0:
            raise AssertionError(f"no {count} workers: {done.stderr}")

    def tail(self):
        return "\n".join(process.tail() for process in self._all)

    def annulus(self, verb, *flags, timeout=cluster.CALL_SECONDS):
        return cluster.annulus(verb, "--address", self.address, *flags, timeout=timeout)

    def __exit__(self, kind, *_):
        crashed = [(each.name, each.crashed()) for each in self._all if each.crashed() is not None]
        for process in self._all:
            process.destroy()
        if kind is not None or crashed:
            print(self.tail(), file=sys.stderr)
        if kind is None and crashed:
            raise AssertionError(f"ended by themselves: {crashed}")
