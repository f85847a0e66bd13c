"""`annulus serve` and Ctrl-C: one line on standard output, and nothing is left, whatever ends it."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from tests.end_to_end.harness import cluster
from tests.end_to_end.harness.waiting import runs, stat_of

WAIT_SECONDS = 30


def children_of(pid):
    found = ((child, stat_of(child)) for child in os.listdir("/proc") if child.isdigit())
    return [int(child) for child, stat in found if stat and stat[1] == pid]


def is_worker(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return b"annulus-worker" in file.read().split(b"\0")[0]


def seconds_on_cpus(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        user, system = file.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def has_been_sent(pid, number):
    """True if the signal is pending for a process that blocks it."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(r"ShdPnd:\s+(\w+)", file.read())[1], 16) >> (number - 1) & 1


def held_bytes(service):
    done = service.annulus("cluster", "--json")
    facts = json.loads(done.stdout)
    used = sum(worker[pool]["used_bytes"] for worker in facts["workers"] for pool in ("staging", "device", "sessions"))
    return used, facts


class ServeTest(unittest.TestCase):
    def test_an_automatic_device_is_for_one_worker(self):
        done = cluster.run("annulus", "serve", "--workers", "2", "--device", "auto")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn("--device auto needs --workers 1", done.stderr)

    def test_a_device_goes_to_each_worker(self):
        done = cluster.run("annulus", "serve", "--workers", "2", "--device", "cuda:1000", "--address", "127.0.0.1:0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot start: FAILED_PRECONDITION", done.stderr)
        self.assertRegex(done.stderr, r"\nannulus serve: worker-[01] ended with exit code 1\n")
        with cluster.Serve(1, "--threads", "1", "--device", "auto") as service:
            self.assertIsNone(service._process.poll())

    def test_a_proxy_of_the_environment_is_left_aside(self):
        with unittest.mock.patch.dict(os.environ, http_proxy="http://127.0.0.1:1", no_proxy=""):
            with cluster.Serve(1, "--threads", "1") as service:
                done = service.annulus("attend", "--synthetic", "1,64,64,1,1,16,fp32,1", "--verify", "4")
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_command_line_that_a_child_refuses_is_a_wrong_one(self):
        """Not one to try again with: a supervisor would, without end."""
        for flag, child in (
            ("--coordinator-flag=--nope=1", "the coordinator"),
            ("--worker-flag=--kernel=foo", "worker-0"),
            ("--worker-flag=--slot=", "worker-0"),
        ):
            with self.subTest(flag):
                done = cluster.run("annulus", "serve", "--workers", "1", "--address", "127.0.0.1:0", flag)
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                lines = [line for line in done.stderr.splitlines() if not line.startswith("2")]  # But its log.
                self.assertEqual(lines[1:], [f"annulus serve: {child} ended with exit code 2"], done.stderr)

    def test_workers_keep_to_cpus_of_their_own(self):
        allowed = sorted(os.sched_getaffinity(0))
        with cluster.Serve(len(allowed), "--pin") as service:
            facts = json.loads(service.annulus("cluster", "--json").stdout)
            self.assertEqual(len(facts["workers"]), len(allowed))
            used = set()
            for pid in filter(is_worker, children_of(service.pid)):
                (cpus,) = {frozenset(os.sched_getaffinity(int(thread))) for thread in os.listdir(f"/proc/{pid}/task")}
                self.assertEqual(len(cpus), 1)
                used |= cpus
            self.assertEqual(sorted(used), allowed)
            done = service.annulus("attend", "--synthetic", "1,256,256,2,2,16,fp32,1", "--world-size", str(len(allowed)), "--verify", "10")
            self.assertEqual(done.returncode, 0, done.stderr)
        done = subprocess.run(cluster.Serve(len(allowed) + 1, "--pin").command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, rf"^annulus serve: --pin needs {len(allowed) + 1} CPUs for {len(allowed) + 1} workers, but {len(allowed)} are available\n$")

    def test_sizes_are_those_that_workers_take(self):
        for flag in ("--staging-bytes", "--device-bytes"):
            done = cluster.run("annulus", "serve", f"{flag}=1")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(done.stderr, f"annulus: {flag}: 1 is out of range, 0 or 1MiB to 1TiB (see --help)\n")

    def test_a_child_that_is_ended_at_its_start_is_worth_another_try(self):
        service = cluster.Serve(1, measure_time="10s")
        process = subprocess.Popen(service.command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            self.await_that(lambda: len(children_of(process.pid)) == 2, "no worker")
            os.kill(max(children_of(process.pid)), signal.SIGKILL)
            _, error = process.communicate(timeout=WAIT_SECONDS)
        finally:
            process.kill()
            process.wait()
        self.assertEqual(process.returncode, 4, error)
        self.assertIn("annulus: UNAVAILABLE: worker-0 was ended by signal 9", error.splitlines())

    def await_that(self, condition, what):
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), deadline, what)

    @contextlib.contextmanager
    def attending(self, service, *flags):
        """`annulus attend`, when its job has been placed and still runs."""
        job = subprocess.Popen(
            [cluster.program(), "attend", "--address", service.address, *flags],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        try:
            self.await_that(lambda: job.poll() is not None or held_bytes(service)[0] > 0, "not placed")
            self.assertIsNone(job.poll(), "the job ended before it was interrupted")
            yield job
        finally:
            job.kill()
            job.wait()
            job.stderr.close()

    def test_nothing_is_left_whatever_ends_it(self):
        for number, code in ((signal.SIGINT, 0), (signal.SIGTERM, 0), (signal.SIGHUP, 0), (signal.SIGKILL, -9)):
            with self.subTest(number.name), cluster.Serve(2, "--threads", "1") as service:
                service.expected_code = code
                children = children_of(service.pid)
                self.assertEqual(len(children), 3)
                os.kill(service.pid, number)
                self.assertEqual(service._process.wait(WAIT_SECONDS), code)
                self.await_that(lambda: not any(map(runs, children)), f"{children} outlive it")
                self.assertEqual([line for line in list(service.lines.queue) if line], [])

    def test_it_hears_of_its_workers_whatever_its_parent_ignored(self):
        service = cluster.Serve(1, "--threads", "1")
        ignoring = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
        service.command = [sys.executable, "-c", ignoring, *service.command]
        service.expected_code, service.expected_ends = 4, ["worker-0 was ended by signal 9"]
        with service:
            # The coordinator is the first.
            os.kill(max(children_of(service.pid)), signal.SIGKILL)
            self.assertEqual(service._process.wait(WAIT_SECONDS), 4)

    def test_a_job_that_outlives_the_grace_is_cut_off_and_all_end_well(self):
        with cluster.Serve(2, *cluster.SLOW, "--drain-grace", "1s") as service:
            with self.attending(service, "--synthetic", "1,16384,16384,8,8,64,fp32,1", "--world-size", "2", "--timeout", "2h"):
                os.kill(service.pid, signal.SIGINT)
                self.assertEqual(service._process.wait(WAIT_SECONDS), 0)

    def test_children_that_end_badly_when_they_are_asked_to_are_told(self):
        with cluster.Serve(2, "--threads", "1") as service:
            service.expected_code = 1
            service.expected_ends = ["the coordinator was ended by signal 9", "worker-1 was ended by signal 9"]
            coordinator, _, worker = sorted(children_of(service.pid))
            os.kill(coordinator, signal.SIGSTOP)
            self.await_that(lambda: stat_of(coordinator)[0] == "T", "not stopped")
            os.kill(service.pid, signal.SIGINT)
            self.await_that(lambda: has_been_sent(coordinator, signal.SIGTERM), "not asked to end")
            for child in (worker, coordinator):
                os.kill(child, signal.SIGKILL)
            service._process.wait(WAIT_SECONDS)

    def test_one_that_does_not_end_is_told_unless_there_is_haste(self):
        for ends in (["worker-1 did not end in 10s"], []):
            with self.subTest(ends=ends), cluster.Serve(2, "--threads", "1") as service:
                service.expected_code, service.expected_ends = len(ends), ends
                coordinator, _, worker = sorted(children_of(service.pid))
                os.kill(worker, signal.SIGSTOP)
                os.kill(service.pid, signal.SIGINT)
                if not ends:
                    self.await_that(lambda: not runs(coordinator), "still drains")
                    os.kill(service.pid, signal.SIGINT)
                service._process.wait(WAIT_SECONDS)
                self.assertFalse(runs(worker))

    def test_its_lines_are_whole_beside_those_of_its_children(self):
        """All write to one standard error: a line in two writes would have another's between them."""
        reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reader.settimeout(WAIT_SECONDS)
        command = cluster.Serve(1, "--threads", "1").command
        with reader, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer) as process:
            writer.close()
            try:
                self.assertIn(b"ready", process.stdout.readline())
                os.kill(max(children_of(process.pid)), signal.SIGKILL)
                writes = list(iter(lambda: reader.recv(1 << 16), b""))
            finally:
                process.kill()
        self.assertEqual([write for write in writes if not write.endswith(b"\n")], [])
        self.assertIn(b"annulus serve: worker-0 was ended by signal 9\n", writes)
        self.assertIn(b"annulus: UNAVAILABLE: all workers have ended\n", writes)

    def test_ctrl_c_in_a_terminal_lets_the_job_end(self):
        """A terminal's Ctrl-C goes to every process of the group; the service still drains."""
        # Seconds of work on the slowest path of the kernel: it still runs when the signal comes.
        with cluster.Serve(2, *cluster.SLOW, "--drain-grace", "100s", stop_seconds=120) as service:
            with self.attending(
                service, "--synthetic", "1,6144,6144,8,8,64,fp32,1", "--world-size", "2", "--timeout", "100s"
            ) as job:
                os.killpg(os.getpgid(service.pid), signal.SIGINT)
                _, error = job.communicate(timeout=100)
            self.assertEqual(job.returncode, 0, error)
            self.assertEqual(service._process.wait(WAIT_SECONDS), 0)

    def test_a_port_that_is_taken_is_an_error(self):
        with cluster.Serve(1, "--threads", "1") as service:
            done = cluster.annulus("serve", "--workers", "1", "--address", service.address)
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertEqual(done.stderr.splitlines(), [
            f"annulus-coordinator: cannot listen on {service.address}: address already in use",
            "annulus serve: the coordinator ended with exit code 1",
        ])

    def test_ctrl_c_ends_a_verification_and_leaves_no_file(self):
        with cluster.Serve(1) as service, tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            # Minutes of verification behind a job of less than a second.
            with self.attending(
                service, "--verify", "4096", "--synthetic", "1,8192,8192,8,8,64,fp32,1",
                "--output", os.path.join(folder, "out"), "--timeout", "100s",
            ) as job:
                self.await_that(lambda: job.poll() is not None or held_bytes(service)[0] == 0, "not over")
                # The job's end is on its way to the client, which has next to nothing to do until
                # it verifies.
                began = seconds_on_cpus(job.pid)
                self.await_that(
                    lambda: job.poll() is not None or seconds_on_cpus(job.pid) > began + 1, "it verifies nothing"
                )
                self.assertIsNone(job.poll(), "the verification ended before it was interrupted")
                self.assertNotEqual(os.listdir(folder), [])
                job.send_signal(signal.SIGINT)
                _, error = job.communicate(timeout=WAIT_SECONDS)
            self.assertEqual((job.returncode, error.splitlines()[-1:]), (130, ["annulus: interrupted"]))
            self.assertEqual(os.listdir(folder), [])

    def test_an_answer_that_nobody_can_read_is_an_error(self):
        with cluster.Serve(1) as service, open("/dev/full", "w", encoding="utf-8") as full:
            plan = [cluster.program(), "plan", "--address", service.address, "--synthetic", "1,64,64,1,1,16,fp32,1"]
            done = subprocess.run([*plan, "--json"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=WAIT_SECONDS)
        self.assertEqual(done.returncode, 1)
        self.assertIn("FILE_ERROR: standard output cannot be written", done.stderr)

    def test_a_hangup_that_is_ignored_ends_nothing(self):
        """Like under nohup."""
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.addCleanup(signal.signal, signal.SIGHUP, before)
        with cluster.Serve(2, *cluster.SLOW, stop_seconds=120) as service:
            os.kill(service.pid, signal.SIGHUP)
            with self.attending(service, "--synthetic", "1,4096,4096,8,8,64,fp32,1", "--world-size", "2", "--timeout", "100s") as job:
                job.send_signal(signal.SIGHUP)
                _, error = job.communicate(timeout=100)
            self.assertEqual(job.returncode, 0, error)
            self.assertIsNone(service._process.poll())

    def test_the_second_hangup_of_a_terminal_cuts_no_job_off(self):
        """One comes from the shell, one from the system."""
        with cluster.Serve(2, *cluster.SLOW, stop_seconds=120) as service:
            with self.attending(service, "--synthetic", "1,4096,4096,8,8,64,fp32,1", "--world-size", "2", "--timeout", "100s") as job:
                os.kill(service.pid, signal.SIGHUP)
                self.await_that(lambda: not held_bytes(service)[1]["ready"], "not draining")
                os.kill(service.pid, signal.SIGHUP)
                _, error = job.communicate(timeout=100)
            self.assertEqual(job.returncode, 0, error)
            self.assertEqual(service._process.wait(WAIT_SECONDS), 0)

    def test_ctrl_c_cancels_a_job_and_frees_what_it_held(self):
        with cluster.Serve(2, *cluster.SLOW) as service:
            for path in ("direct", "gateway"):
                with self.subTest(path):
                    with self.attending(
                        service, "--path", path, "--synthetic", "1,16384,16384,8,8,64,fp32,1", "--world-size", "2", "--timeout", "2h"
                    ) as job:
                        job.send_signal(signal.SIGINT)
                        _, error = job.communicate(timeout=WAIT_SECONDS)
                    self.assertEqual(job.returncode, 130, error)
                    self.await_that(lambda: held_bytes(service)[0] == 0, "bytes are still held")
            done = service.annulus("attend", "--synthetic", "1,64,64,2,2,16,fp32,1", "--verify", "8")
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
