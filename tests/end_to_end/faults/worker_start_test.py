"""A worker that cannot work says so at start, and not when the first group is formed."""

import ctypes
import errno
import json
import os
import re
import socket
import struct
import subprocess
import unittest

from tests.end_to_end.harness import cluster, processes
from tests.end_to_end.harness.waiting import wait_for


def hide_amx():
    """Makes this process, and what it becomes, a machine without AMX: Linux refuses it the tiles
    (arch_prctl, ARCH_REQ_XCOMP_PERM) by a seccomp filter."""
    load, jump_if_equal, end = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    program = b"".join(struct.pack("HBBI", *step) for step in (
        (load, 0, 0, 0), (jump_if_equal, 0, 3, 158),  # The system call's number.
        (load, 0, 0, 16), (jump_if_equal, 0, 1, 0x1023),  # Its first argument.
        (end, 0, 0, refuse), (end, 0, 0, allow)))
    steps = ctypes.create_string_buffer(program)
    filter_ = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(steps)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    no_new_privileges, set_seccomp, filter_mode = 38, 22, 2
    if prctl(no_new_privileges, 1, 0, 0, 0) != 0 or \
            prctl(set_seccomp, filter_mode, filter_, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


class WorkerStartTest(unittest.TestCase):
    def test_a_comm_address_that_is_not_of_this_machine(self):
        for address in ("203.0.113.9", "no-such-host.invalid", "if:no-such-interface"):
            for rate in ("0", "1GiB"):
                with self.subTest(address=address, rate=rate):
                    done = subprocess.run(
                        [cluster.program("annulus-worker"), "--data-address", "127.0.0.1:0",
                         "--comm-address", address, "--link-rate", rate, "--measure-time", "1ms"],
                        capture_output=True, text=True, timeout=60,
                    )
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn("--comm-address: ", done.stderr)

    def test_cpus_that_are_not_there(self):
        for cpus, code, words in (("1023", 1, r"--cpus: CPUs 1023 are not all among the usable CPUs \S+"), ("1-", 2, "--cpus: '1-' is not a list of CPUs")):
            with self.subTest(cpus=cpus):
                done = subprocess.run(
                    [cluster.program("annulus-worker"), "--data-address", "127.0.0.1:0", "--cpus", cpus],
                    capture_output=True, text=True, timeout=60,
                )
                self.assertEqual(done.returncode, code, done.stderr)
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                self.assertRegex(done.stderr, words)

    def test_a_gpu_that_is_not_there(self):
        done = subprocess.run(
            [cluster.program("annulus-worker"), "--data-address", "127.0.0.1:0",
             "--comm-address", "127.0.0.1", "--device", "cuda:1023"],
            capture_output=True, text=True, timeout=60,
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertRegex(done.stderr, "cannot start: FAILED_PRECONDITION: (no |this |the )")

    def test_the_check_of_a_kernel_on_a_gpu_that_is_not_there(self):
        done = subprocess.run(
            [cluster.program("annulus-worker"), "--check-hopper-on", "cuda:1023"],
            capture_output=True, text=True, timeout=60,
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stdout, "^(no |this |the )[^\\n]*\\n$")

    def test_a_kernel_that_the_cpu_lacks(self):
        done = subprocess.run(
            [cluster.program("annulus-worker"), "--data-address", "127.0.0.1:0",
             "--comm-address", "127.0.0.1", "--kernel", "amx"],
            capture_output=True, text=True, timeout=60, preexec_fn=hide_amx,
        )
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn("cannot start: FAILED_PRECONDITION / KERNEL_PATH_NOT_ON_THIS_CPU: "
                      "kernel path", done.stderr)

    def test_an_address_that_is_taken(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            for flags in ({"--data-address": address}, {"--data-address": "127.0.0.1:0", "--health-address": address}):
                with self.subTest(flags=flags):
                    done = subprocess.run(
                        [cluster.program("annulus-worker"), "--comm-address", "127.0.0.1", "--measure-time", "1ms",
                         *(word for flag in flags.items() for word in flag)],
                        capture_output=True, text=True, timeout=60,
                    )
                    self.assertEqual(done.returncode, 1, done.stderr)
                    lines = [line for line in done.stderr.splitlines() if " I " not in line]
                    self.assertEqual(len(lines), 1, done.stderr)
                    self.assertTrue(lines[0].endswith(
                        f"CANNOT_LISTEN: cannot listen on {address}: address already in use"), done.stderr)

    def test_an_address_that_is_everywhere_is_told_to_nobody(self):
        for flags in (("--data-address=0.0.0.0:0",), ("--data-address=[::]:0",), ("--advertise-address=0.0.0.0",),
                      ("--advertise-address=[::]",), ("--advertise-address=0.0.0.0:8004", "--data-address=0.0.0.0:0")):
            with self.subTest(flags=flags):
                done = cluster.run("annulus-worker", *flags)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertRegex(done.stderr, f"^annulus-worker: {re.escape(flags[0].split('=')[0])} .* is a wildcard address: ")

    def test_a_coordinator_that_cannot_be_reached_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        with processes.Processes(0) as service:
            for address, told in (
                (nobody, f"cannot reach the coordinator at {nobody}: .*Connection refused"),
                (service.address, f"the control stream to {service.address} has ended: UNIMPLEMENTED: .*--control-address"),
            ):
                with self.subTest(told=told):
                    worker = service.start_worker(0, {"--coordinator": address})
                    wait_for(lambda: re.search(told, worker.tail()), 20, worker.tail)
                    worker.kill()

    def test_its_health_is_described_by_reflection(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            health = f"127.0.0.1:{taken.getsockname()[1]}"
        with processes.Processes(1, worker_flags={"--health-address": health}) as service:
            state = json.loads(service.annulus("cluster", "--json").stdout)
            for address in (state["workers"][0]["data_endpoint"], health):
                with self.subTest(address=address):
                    done = subprocess.run(
                        [os.path.abspath("external/python_tools/grpcurl"), "-plaintext", "-max-time", "20",
                         "-d", '{"service": "liveness"}', address, "grpc.health.v1.Health/Check"],
                        capture_output=True, text=True, timeout=60,
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(json.loads(done.stdout), {"status": "SERVING"})


if __name__ == "__main__":
    unittest.main()
