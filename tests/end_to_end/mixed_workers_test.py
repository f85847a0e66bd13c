"""spec.deterministic where workers compute by different kernel paths."""

import json
import unittest

from tests.end_to_end.harness import processes

SHAPE = "1,300,500,4,2,64,fp32,3"


class MixedWorkersTest(unittest.TestCase):
    def attend(self, service, *flags):
        return service.annulus("attend", "--synthetic", SHAPE, "--json", *flags)

    def test_deterministic_jobs_are_refused_while_workers_differ(self):
        with processes.Processes(1, worker_flags={"--kernel": "portable"}) as service:
            bits = json.loads(self.attend(service, "--deterministic").stdout)["output_crc32c"]
            other = service.start_worker(1, {"--kernel": "avx2"})
            service.await_workers(2)
            for command in ("attend", "plan"):
                done = service.annulus(command, "--synthetic", SHAPE, "--deterministic", "--world-size", "1")
                self.assertEqual(done.returncode, 3, done.stderr)
                for word in ("MIXED_WORKERS", "spec.deterministic", "w0 (cpu/portable)", "w1 (cpu/avx2)"):
                    self.assertIn(word, done.stderr)
            self.assertEqual(self.attend(service, "--world-size", "2").returncode, 0)
            self.assertEqual(other.end(), 0)
            service.start_worker(1)
            service.await_workers(2)
            again = self.attend(service, "--deterministic", "--world-size", "2")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertEqual(json.loads(again.stdout)["output_crc32c"], bits)


if __name__ == "__main__":
    unittest.main()
