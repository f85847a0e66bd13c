"""A requested stop is no warning; a loss is one."""

import os
import re
import signal
import subprocess
import unittest

from tests.end_to_end.harness import cluster, processes
from tests.end_to_end.harness.waiting import wait_for

WAIT_SECONDS = 30
WARNINGS = re.compile(r"^\S+Z [WE] .*", re.MULTILINE)


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
        return [int(child) for child in file.read().split()]


def waits_for_signals(pid):
    """True if a worker's program blocks SIGTERM, to receive it later. Before exec() it has its parent's mask."""
    if not os.readlink(f"/proc/{pid}/exe").endswith("annulus-worker"):
        return False
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return int(re.search(r"SigBlk:\s+(\w+)", file.read())[1], 16) >> (signal.SIGTERM - 1) & 1


class OrderlyStopTest(unittest.TestCase):
    def assert_calm(self, log):
        self.assertEqual(WARNINGS.findall(log), [], log)

    def test_a_service_that_is_asked_to_end(self):
        with cluster.Serve(2, "--threads", "1") as service:
            done = service.annulus("attend", "--synthetic", "1,64,64,2,2,16,fp32,1", "--world-size", "2")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(service.stop(), 0)
            wait_for(lambda: None in service.log, WAIT_SECONDS, "its log goes on")
            self.assertRegex(service.tail(200), "the coordinator is shutting down")
            self.assert_calm(service.tail(200))

    def starting(self, *flags):
        """`annulus serve` whose worker would measure for half a minute, when it does."""
        command = cluster.Serve(1, "--threads", "1", *flags, measure_time="10s").command
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)

        def worker():
            started = children_of(process.pid)[1:]
            return started if started and waits_for_signals(started[0]) else None

        wait_for(worker, WAIT_SECONDS, "no worker")
        return process

    def test_a_service_whose_workers_still_measure(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name):
                process = self.starting()
                process.send_signal(number)
                output, log = process.communicate(timeout=WAIT_SECONDS)
                self.assertEqual((process.returncode, output), (0, ""), log)
                self.assertRegex(log, "I worker-0 ended by a signal before it was ready")
                self.assert_calm(log)

    def test_a_service_that_is_not_ready_in_time(self):
        process = self.starting("--ready-timeout", "5s")
        output, log = process.communicate(timeout=WAIT_SECONDS)
        self.assertEqual((process.returncode, output), (5, ""), log)
        self.assertRegex(log, "I worker-0 ended by a signal before it was ready")
        self.assert_calm(log)

    def test_a_worker_that_is_asked_to_end(self):
        with processes.Processes(2) as service:
            leaving = service.worker(1)
            self.assertEqual(leaving.end(), 0)
            wait_for(lambda: "worker w1 has left" in service.coordinator.tail(), WAIT_SECONDS, service.tail)
            for process in (leaving, service.coordinator):
                self.assert_calm(process.tail())

    def test_a_coordinator_whose_log_nobody_reads_any_more(self):
        flags = ("--address", "127.0.0.1:0", "--control-address", "127.0.0.1:0")
        coordinator = subprocess.Popen(
            [cluster.program("annulus-coordinator"), *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.addCleanup(coordinator.wait)
        self.addCleanup(coordinator.kill)
        self.assertIn("listening", coordinator.stdout.readline())
        coordinator.stderr.close()
        coordinator.send_signal(signal.SIGTERM)  # It says so, twice.
        self.assertEqual(coordinator.wait(timeout=WAIT_SECONDS), 0)
        coordinator.stdout.close()

    def test_a_coordinator_that_ends_and_one_that_is_lost(self):
        for number, level in ((signal.SIGTERM, "I"), (signal.SIGKILL, "W")):
            with self.subTest(number.name), processes.Processes(1) as service:
                service.coordinator.signal(number)
                told = f"{level} w0 the control stream to .* has ended: UNAVAILABLE: .*\n"
                told += f"(.*\n)*.* {level} w0 cannot reach the coordinator"
                wait_for(lambda: re.search(told, service.worker(0).tail()), WAIT_SECONDS, service.tail)


if __name__ == "__main__":
    unittest.main()
