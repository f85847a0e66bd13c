"""tools/quickstart chooses what to build and shows its progress; Bazel and the jobs are stood in for."""

import glob
import os
import shutil
import stat
import subprocess
import tempfile
import unittest

PROGRESS = "[1,204 / 1,640] Compiling a.cc; 3s"


class QuickstartBuildTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(shutil.rmtree, self.root)
        for path in ("tools", ".venv/bin"):
            os.makedirs(f"{self.root}/{path}")
        shutil.copy("tools/quickstart", f"{self.root}/tools/quickstart")
        self.program("tools/setup", "exit 0")
        self.program(".venv/bin/python", 'echo "jobs run by $ANNULUS_PROGRAMS"')

    def program(self, path, body):
        with open(f"{self.root}/{path}", "w", encoding="utf-8") as file:
            file.write(f"#!/bin/bash\n{body}\n")
        os.chmod(file.name, os.stat(file.name).st_mode | stat.S_IXUSR)

    def run_it(self, *arguments, build_ends_with=0):
        self.program(
            "bazel",
            f'echo "$*" >> {self.root}/calls\n'
            f'case $1 in info) echo /out ;; build) echo "{PROGRESS}" >&2; echo "INFO: a line" >&2; exit {build_ends_with} ;; esac',
        )
        done = subprocess.run(
            [f"{self.root}/tools/quickstart", *arguments],
            env={**os.environ, "BAZEL": f"{self.root}/bazel"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
        )
        calls = ""
        if os.path.exists(f"{self.root}/calls"):
            with open(f"{self.root}/calls", encoding="utf-8") as file:
                calls = file.read()
        return done.returncode, done.stdout, calls

    def test_progress_is_a_share_of_actions(self):
        code, output, _ = self.run_it()
        self.assertEqual(code, 0, output)
        self.assertIn("building: 73 % (1204 of 1640 actions)\nINFO: a line\n", output)
        self.assertRegex(output, r"takes about \d+ minutes on \d+ cores")
        self.assertTrue(output.endswith("jobs run by /out/bin\n"), output)

    def test_cuda_where_there_is_a_gpu(self):
        _, output, calls = self.run_it()
        gpu = bool(glob.glob("/dev/nvidia[0-9]*"))
        self.assertEqual("--repo_env=CUDA_HOME=none" in calls, not gpu)
        self.assertEqual("CUDA code is left out" in output, not gpu)

    def test_cuda_on_request(self):
        _, output, calls = self.run_it("--with-cuda")
        self.assertIn("build --curses=no", calls)
        self.assertNotIn("CUDA_HOME", calls)
        self.assertNotIn("left out", output)

    def test_a_build_that_fails_ends_it(self):
        code, output, calls = self.run_it(build_ends_with=3)
        self.assertEqual(code, 3, output)
        self.assertNotIn("jobs run", output)
        self.assertTrue(calls.endswith("shutdown\n"), calls)

    def test_unknown_arguments(self):
        code, output, calls = self.run_it("--with-gpu")
        self.assertEqual((code, calls), (2, ""))
        self.assertIn("unknown argument '--with-gpu'", output)


if __name__ == "__main__":
    unittest.main()
