"""Tests the measurements of torch, without torch."""

import contextlib
import io
import json
import os
import sys
import unittest
from unittest import mock

from tests.gpu import peers
from tests.gpu.fake_parts import Case


class PeersTest(Case):
    def setUp(self):
        super().setUp()
        os.makedirs(self.out)
        self.path = os.path.join(self.out, "peers.json")
        self.torch = mock.MagicMock(**{"__version__": "2.9.1", "version.cuda": "13.0", "backends.cudnn.version": lambda: 91900})
        self.torch.cuda.Event.return_value.elapsed_time.return_value = 2.0

    def test_a_peer_is_named_with_its_versions(self):
        with contextlib.redirect_stdout(io.StringIO()):
            peers.Figures(self.torch, self.path).add(peers.entry("read", 2e9, 1.0, "GB/s"))
        found = json.loads(self.left_in("peers.json"))
        self.assertEqual([(figure["value"], figure["compared_to"]) for figure in found], [(2.0, "by torch 2.9.1, CUDA 13.0, cuDNN 91900")])

    def test_one_that_is_killed_leaves_the_figures_before(self):
        known = []

        def attend(*_, **__):
            known.append([figure["name"] for figure in json.loads(self.left_in("peers.json"))])
            if len(known) > peers.REPEATS + 3:
                raise KeyboardInterrupt

        self.torch.nn.functional.scaled_dot_product_attention.side_effect = attend
        said = io.StringIO()
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(sys.modules, {"torch": self.torch, "torch.nn": self.torch.nn,
                                                              "torch.nn.attention": self.torch.nn.attention}))
            stack.enter_context(contextlib.redirect_stdout(said))
            with self.assertRaises(KeyboardInterrupt):
                peers.figures(self.path)
        first = ["gemm bf16 8192", "read"]
        self.assertEqual((known[0], known[-1]), (first, [*first, "cudnn forward bf16 S8192 D128 full"]))
        # 2 ms each.
        self.assertEqual(said.getvalue().splitlines()[:2], ["gemm bf16 8192: 550 TFLOP/s", "read: 537 GB/s"])


if __name__ == "__main__":
    unittest.main()
