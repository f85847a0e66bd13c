"""deploy/smoke.sh holds against `annulus serve`, and `annulus cluster` shows nothing held after it."""

import json
import os
import subprocess
import unittest

from tests.end_to_end.harness import cluster


class SmokeTest(unittest.TestCase):
    def test_smoke_holds(self):
        with cluster.Serve(workers=2) as service:
            done = subprocess.run(
                ["deploy/smoke.sh", service.address],
                env=dict(os.environ, GRPCURL="external/python_tools/grpcurl"),
                capture_output=True,
                text=True,
                timeout=240,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            state = json.loads(service.annulus("cluster", "--json").stdout)
            self.assertEqual(len(state["workers"]), 2)
            for worker in state["workers"]:
                for pool in ("staging", "device", "sessions"):
                    self.assertEqual(int(worker[pool]["used_bytes"]), 0, worker)
            self.assertEqual(service.stop(), 0)


if __name__ == "__main__":
    unittest.main()
