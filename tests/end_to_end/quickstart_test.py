"""tools/quickstart's program: says what it promises, ends well, and leaves nothing running."""

import os
import re
import subprocess
import sys
import unittest
import uuid

MARK = "ANNULUS_QUICKSTART_TEST"
JOB = (r"    plan      [a-z-]+, [a-z-]+, \d workers, \w.*\n"
       r"    time      [\d.]+ ms: queued .*, running [\d.]+ \(predicted [\d.]+; waiting .*\)\n"
       r"    data      [\d.]+ MB in, [\d.]+ MB out, \w+ path, [\d.]+ GB/s over all; each worker sent .*\n"
       r"    error     \S+ (?:at most|random rows) .*: good\n")


def marked(value):
    """Processes with the mark, whatever started them."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if f"{MARK}={value}".encode() in file.read().split(b"\0"):
                    found.append(int(pid))
        except OSError:
            pass  # Ended, or another user's.
    return found


class QuickstartTest(unittest.TestCase):
    def run_quickstart(self, *flags, **environment):
        value = uuid.uuid4().hex
        done = subprocess.run(
            [sys.executable, "-m", "tools.testing.quickstart", *flags], capture_output=True, text=True, timeout=120,
            env={**os.environ, MARK: value, **environment},
        )
        self.assertEqual(marked(value), [])
        return done

    def test_it_runs_both_jobs_and_leaves_nothing(self):
        done = self.run_quickstart("--tokens", "4096")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"(?m)^ready at 127\.0\.0\.1:\d+$")
        self.assertEqual(len(re.findall(JOB, done.stdout)), 3, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^  4096 tokens, 8 query heads on 2 key/value heads of 64, bf16, causal")
        self.assertTrue(done.stdout.endswith("\nstopped everything; annulus serve ended with 0\n"), done.stdout)

    def test_a_service_that_does_not_start_is_a_failure(self):
        done = self.run_quickstart(ANNULUS_PROGRAMS="/nowhere")
        self.assertNotEqual(done.returncode, 0)


if __name__ == "__main__":
    unittest.main()
