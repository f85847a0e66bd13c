"""spec.arithmetic: bf16x3 where every worker has AMX, and a refusal elsewhere."""

import unittest

from tests.end_to_end.harness import cluster
from tests.end_to_end.harness.attend_case import AttendCase

SHAPE = "1,300,500,4,2,64,fp32,3"
HAS_AMX = "amx_bf16" in open("/proc/cpuinfo").read().split()


class Bf16x3Test(AttendCase):
    @unittest.skipUnless(HAS_AMX, "this CPU has no AMX")
    def test_answers_are_within_their_own_budget(self):
        for flags in ((), ("--world-size", "2", "--strategy", "ring-pass-kv"),
                      ("--world-size", "2", "--path", "direct", "--deterministic")):
            with self.subTest(flags=flags):
                shape = ("--synthetic", SHAPE, "--verify", "300", *flags)
                split = self.attend(*shape, "--arithmetic", "bf16x3")
                self.assertNotEqual(split["output_crc32c"], self.attend(*shape)["output_crc32c"])

    def test_refusals_name_the_field(self):
        for shape, spec in ((SHAPE.replace("fp32", "bf16"), {}), (SHAPE, {"gradients": {}})):
            done = self.service.annulus("plan", "--synthetic", shape, "--arithmetic", "bf16x3", "--spec", self.spec_file(spec))
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("NOT_SERVED", done.stderr)
            self.assertIn("spec.arithmetic", done.stderr)


class WithoutAmxTest(unittest.TestCase):
    def test_a_worker_without_amx_is_why(self):
        with cluster.Serve(1, "--worker-flag=--kernel=portable", measure_time="1ms") as service:
            for command in ("attend", "plan"):
                done = service.annulus(command, "--synthetic", SHAPE, "--arithmetic", "bf16x3")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("UNIMPLEMENTED / NOT_SERVED", done.stderr)
                self.assertIn("cpu/portable", done.stderr)
                done = service.annulus(command, "--synthetic", SHAPE)
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
