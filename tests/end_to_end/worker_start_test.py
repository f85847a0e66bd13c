"""A worker that cannot work says so at start, and not when the first group is formed."""

import subprocess
import unittest

from tests.end_to_end import cluster


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


if __name__ == "__main__":
    unittest.main()
