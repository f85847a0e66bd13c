"""Parts that need no GPU, for the tests of their runner."""

import json
import os
import sys
import tempfile
import unittest

from tests.gpu import run, schedule
from tests.gpu.runner import Part

WAIT = "import threading; threading.Event().wait(1000)"


def fake(name, code, result="", seconds=20, write=None, **fields):
    """A part that writes its result file and runs a line of Python."""
    save = f"open({name + '.json'!r}, 'w').write({json.dumps(write)!r})\n" if write is not None else ""
    return Part(name, f"the part {name}", seconds, [sys.executable, "-c", save + code], result, **fields)


class Place:
    programs, nccl, cudnn, hopper = "/programs", "/lib/libnccl.so.2", "/lib/libcudnn.so.9", True

    @staticmethod
    def test(name):
        assert name in run.TESTS, name
        return "/programs/" + name


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.out = os.path.join(folder.name, "out")
        self.said = []

    def go(self, all_parts, seconds=60, fresh=False, identity="one", **options):
        return schedule.run(all_parts, self.out, identity, seconds, fresh, say=self.said.append, **options)

    def left_in(self, name):
        """The content of a file that a part has left."""
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return file.read()
