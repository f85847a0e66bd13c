"""The harness of the end-to-end tests: it waits, it refuses, and it leaves nothing behind."""

import os
import stat
import tempfile
import unittest

from tests.end_to_end.harness import cluster
from tests.end_to_end.harness.waiting import runs

READY = 'echo "ready 127.0.0.1:4711 workers=2"\n'
# A process of the same session that outlives its parent; its id goes to $PIDS.
ORPHAN = 'sleep 600 & echo $! > "$PIDS"\n'
LOOP = "while :; do sleep 0.05; done\n"
ENDS = "trap 'exit 0' INT\n"
DEAF = "trap '' INT\n"


class ClusterTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(self.folder.cleanup)
        self.pids = os.path.join(self.folder.name, "pids")
        os.environ["PIDS"] = self.pids
        self.programs, cluster.PROGRAMS = cluster.PROGRAMS, self.folder.name
        self.addCleanup(setattr, cluster, "PROGRAMS", self.programs)

    def serve(self, script, **options):
        path = os.path.join(self.folder.name, "annulus")
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\n" + script)
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return cluster.Serve(2, **options)

    def test_it_is_ready_and_ends_when_asked(self):
        with self.serve(ENDS + READY + LOOP) as service:
            self.assertEqual(service.address, "127.0.0.1:4711")
            self.assertTrue(runs(service.pid))
            self.assertEqual(service.stop(), 0)
        self.assertFalse(runs(service.pid))

    def test_another_line_or_an_early_end_is_an_error(self):
        hello, fewer = 'echo "hello"\n', READY.replace("=2", "=1")
        for script in (ENDS + hello + LOOP, ENDS + fewer + LOOP, "exit 3\n"):
            with self.subTest(script=script), self.assertRaisesRegex(cluster.ServeError, "ready line"):
                with self.serve(script):
                    pass

    def test_the_log_is_in_the_error(self):
        with self.assertRaisesRegex(cluster.ServeError, "no port"):
            with self.serve('echo "no port" >&2\nsleep 0.2\nexit 1\n'):
                pass

    def test_silence_is_an_error_at_the_deadline(self):
        with self.assertRaisesRegex(cluster.ServeError, "not ready in 0.2 s"):
            with self.serve(ENDS + LOOP, ready_seconds=0.2):
                pass

    def test_nothing_is_left(self):
        with self.serve(ENDS + ORPHAN + READY + LOOP):
            with open(self.pids, encoding="utf-8") as file:
                orphan = int(file.read())
            self.assertTrue(runs(orphan))
        self.assertFalse(runs(orphan))

    def test_a_child_that_ended_by_itself_is_an_error_unless_it_was_expected(self):
        lost = "worker-1 was ended by signal 11"
        for script, code, ends in (
            ("trap 'exit 1' INT\n" + READY + LOOP, 1, []),
            (ENDS + READY + f'echo "annulus serve: {lost}" >&2\n' + LOOP, 0, [lost]),
        ):
            with self.subTest(script=script):
                with self.assertRaisesRegex(cluster.ServeError, f"ended with {code}, its children so: .*{''.join(ends)}"):
                    with self.serve(script):
                        pass
                service = self.serve(script)
                service.expected_code, service.expected_ends = code, ends
                with service:
                    pass
        with self.assertRaisesRegex(ValueError, "the test's own"):
            with self.serve("trap 'exit 1' INT\n" + READY + LOOP):
                raise ValueError("the test's own")

    def test_one_that_does_not_stop_is_killed_and_an_error(self):
        with self.assertRaisesRegex(cluster.ServeError, "still runs"):
            with self.serve(DEAF + READY + LOOP, stop_seconds=0.3) as service:
                pass
        self.assertFalse(runs(service.pid))


if __name__ == "__main__":
    unittest.main()
