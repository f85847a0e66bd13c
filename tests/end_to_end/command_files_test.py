"""Files that the command line must not lose, or must not take for what they are not."""

import json
import os
import resource
import tempfile
import unittest

import numpy as np
from safetensors.numpy import load_file, save_file

from tests.end_to_end.harness import cluster, service_case
from tests.end_to_end.harness.service_case import ServiceCase


class CommandFilesTest(ServiceCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")))
        random = np.random.default_rng(5)
        self.inputs = {name: random.standard_normal((24, 2, 8), np.float32) for name in "qkv"}
        save_file(self.inputs, self.path("in"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_command(self, *arguments, expect=0):
        """The text on standard output, or on standard error if the command should fail."""
        addressed = arguments[0] not in ("shard", "unshard")
        done = (self.service.annulus if addressed else cluster.annulus)(*arguments)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stderr if expect else done.stdout

    def refused(self, reason, *arguments):
        told = self.run_command(*arguments, expect=3)
        self.assertRegex(told, rf"^annulus: [A-Z_]+ / {reason}: \S")
        return told

    def write_plan(self):
        """A plan of two ranks for the inputs."""
        with open(self.path("plan"), "w", encoding="utf-8") as file:
            file.write(self.run_command("plan", "--json", "--input", self.path("in"), "--world-size", "2", "--layout", "contiguous"))

    def test_an_output_never_replaces_an_input(self):
        self.run_command("attend", "--input", self.path("in"), "--output", self.path("out"))
        self.write_plan()
        for rank in "01":
            self.run_command("shard", "--plan", self.path("plan"), "--rank", rank, "--input", self.path("in"), "--output", self.path("rank" + rank))
        save_file({**self.inputs, **load_file(self.path("out")), "d_out": self.inputs["q"]}, self.path("whole"))
        os.symlink(self.path("in"), self.path("link"))
        commands = (
            (("attend", "--input", self.path("in")), ("in", "link")),
            (("gradients", "--input", self.path("whole")), ("whole",)),
            (("merge", "--input", self.path("out"), "--lse-base", "e"), ("out",)),
            (("shard", "--plan", self.path("plan"), "--rank", "0", "--input", self.path("in")), ("in", "plan")),
            (("unshard", "--plan", self.path("plan"), "--input", self.path("rank0"), "--input", self.path("rank1")), ("rank0", "rank1")),
        )
        for command, outputs in commands:
            for output in outputs:
                with self.subTest(command=command[0], output=output):
                    with open(self.path(output), "rb") as file:
                        before = file.read()
                    self.refused("OUTPUT_IS_INPUT", *command, "--output", self.path(output))
                    with open(self.path(output), "rb") as file:
                        self.assertEqual(file.read(), before)

    def test_what_is_no_file_is_refused_by_its_name(self):
        os.mkfifo(self.path("fifo"))
        self.assertIn("fifo: ", self.refused("BAD_SAFETENSORS", "attend", "--input", self.path("fifo")))
        shard = ("shard", "--rank", "0", "--input", self.path("in"), "--output", self.path("made"), "--plan")
        for command in (("attend", "--input", self.path("in"), "--spec"), shard):
            self.refused("FILE_NOT_FOUND", *command, self.path("missing"))
            self.assertIn(self.folder + ": Is a directory", self.refused("FILE_ERROR", *command, self.folder))
            self.refused("FILE_ERROR", *command, self.path("in/below"))
            if os.geteuid() != 0:
                os.close(os.open(self.path("locked"), os.O_CREAT, 0))
                self.assertIn("PERMISSION_DENIED", self.refused("FILE_ERROR", *command, self.path("locked")))

    def test_what_is_no_place_for_a_file_is_refused(self):
        """The answer would be in a file named `-`, or nowhere."""
        self.write_plan()
        self.run_command("attend", "--input", self.path("in"), "--output", self.path("out"))
        for command in (
            ("attend", "--input", self.path("in")),
            ("merge", "--input", self.path("out"), "--lse-base", "e"),
            ("shard", "--plan", self.path("plan"), "--rank", "0", "--input", self.path("in")),
        ):
            with self.subTest(command=command[0]):
                self.assertIn("cannot write -: the output must be a file, not standard output; for a file of this name, give ./-",
                              self.refused("FILE_ERROR", *command, "--output", "-"))
                self.assertFalse(os.path.exists("-"))
                self.assertIn("cannot write /dev/stdout: it is a pipe, not a regular file",
                              self.refused("FILE_ERROR", *command, "--output", "/dev/stdout"))

    def test_a_disk_that_is_full_is_found_before_the_job(self):
        def jobs():
            return sorted(job["job_id"] for job in service_case.cluster_state(self.service)["jobs"])

        self.run_command("attend", "--input", self.path("in"), "--output", self.path("out"))
        save_file({**self.inputs, **load_file(self.path("out")), "d_out": self.inputs["q"]}, self.path("whole"))
        before = jobs()
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        for command in (("attend", "--input", self.path("in")), ("gradients", "--input", self.path("whole")),
                        ("merge", "--input", self.path("out"), "--lse-base", "e")):
            with self.subTest(command=command[0]):
                resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
                try:
                    told = self.refused("FILE_ERROR", *command, "--output", self.path("none"))
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
                self.assertIn("none: File too large", told)
                self.assertFalse([name for name in os.listdir(self.folder) if name.startswith("none")])
        self.assertEqual(jobs(), before)

    def test_a_job_that_is_refused_is_so_before_its_numbers_are_made(self):
        """They would take longer than there is time."""
        shape = ("--synthetic", "1,100000,100000,8,8,64,fp32,1")
        told = self.refused("INSUFFICIENT_WORKERS", "attend", "--timeout", "3s", "--world-size", "64", *shape)
        small = self.refused("INSUFFICIENT_WORKERS", "attend", "--world-size", "64", "--synthetic", "1,8,8,8,8,64,fp32,1")
        self.assertEqual(told, small)

    def test_what_a_spec_says_of_a_state_is_refused(self):
        """Nothing would come of it: flags say that."""
        for field, value, flag in (("state", "job-x", "--handle"), ("releaseState", True, "--release")):
            with open(self.path("spec"), "w", encoding="utf-8") as file:
                json.dump({"gradients": {field: value}}, file)
            for command in (("gradients",), ("gradients", "--handle", "job-x", "--or-upload")):
                told = self.refused("BAD_SPEC", *command, "--input", self.path("in"), "--spec", self.path("spec"))
                self.assertIn(flag + " sets it", told)

    def test_a_time_that_the_inputs_took_is_told(self):
        command = ("attend", "--timeout", "1ms")
        told = self.run_command(*command, "--synthetic", "1,20000,20000,8,8,64,fp32,1", expect=5)
        self.assertEqual(told, "annulus: DEADLINE_EXCEEDED / EXPIRED_WITH_INPUTS: --timeout 1ms passed while the inputs "
                               "were generated; the job was not sent\n")


if __name__ == "__main__":
    unittest.main()
