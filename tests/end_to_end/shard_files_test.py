"""annulus shard and unshard: files cut by a plan of the service, held against numpy, and put together again."""

import json
import os
import tempfile
import unittest

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from tests.end_to_end.harness import cluster
from tests.end_to_end.harness.service_case import ServiceCase

LAYOUTS = ("contiguous", "zigzag", "striped", "by-area", "zigzag-per-sequence")


def rows_of(ranges):
    """The packed rows that a plan names."""
    parts = [r["begin"] + i * r["stride"] + np.arange(r["block"]) for r in ranges for i in range(r["count"])]
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


class ShardFilesTest(ServiceCase):
    WORKERS = 3

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")))
        random = np.random.default_rng(3)
        self.tensors = {
            "q": random.standard_normal((2, 33, 4, 8)).astype(np.float16),
            "k": random.standard_normal((2, 37, 2, 8)).astype(np.float16),
            "v": random.standard_normal((2, 37, 2, 5)).astype(np.float16),
        }
        save_file(self.tensors, self.path("inputs"))
        # A tensor that belongs to the rows of its outputs.
        self.tensors["lse"] = random.standard_normal((2, 4, 33)).astype(np.float32)
        save_file(self.tensors, self.path("whole"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_command(self, *arguments):
        done = cluster.annulus(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def plan(self, layout, *flags):
        plan = self.run_command("plan", "--address", self.service.address, "--input", self.path("inputs"), "--mask", "causal", "--world-size", "3", "--layout", layout, *flags)
        with open(self.path("plan"), "w") as file:
            json.dump(plan, file)
        return plan

    def shard(self, rank):
        return self.run_command("shard", "--plan", self.path("plan"), "--rank", str(rank), "--input", self.path("whole"),
                                "--output", self.path(f"rank{rank}"))

    def test_every_layout_is_cut_as_its_plan_says_and_put_together_again(self):
        for layout in LAYOUTS:
            with self.subTest(layout=layout):
                for shard in self.plan(layout)["shards"]:
                    self.shard(shard["rank"])
                    got = load_file(self.path(f"rank{shard['rank']}"))
                    q_rows, kv_rows = rows_of(shard["q_rows"]), rows_of(shard["kv_rows"])
                    for name, rows in (("q", q_rows), ("k", kv_rows), ("v", kv_rows)):
                        packed = self.tensors[name].reshape(-1, *self.tensors[name].shape[2:])
                        np.testing.assert_array_equal(got[name], packed[rows])
                    lse = np.moveaxis(self.tensors["lse"], 1, 0).reshape(4, -1)
                    np.testing.assert_array_equal(got["lse"], lse[:, q_rows])
                parts = [argument for rank in range(3) for argument in ("--input", self.path(f"rank{rank}"))]
                self.run_command("unshard", "--plan", self.path("plan"), *parts, "--batch", "2", "--output", self.path("back"))
                back = load_file(self.path("back"))
                self.assertEqual(back.keys(), self.tensors.keys())
                for name, array in self.tensors.items():
                    np.testing.assert_array_equal(back[name], array)
                self.run_command("unshard", "--plan", self.path("plan"), *parts, "--output", self.path("packed"))
                np.testing.assert_array_equal(load_file(self.path("packed"))["q"], self.tensors["q"].reshape(-1, 4, 8))

    def test_stripes_have_the_rows_that_are_asked_for(self):
        plan = self.plan("striped", "--stripe", "4")
        self.assertEqual(plan["stripe"], 4)
        self.assertEqual({r["block"] for shard in plan["shards"] for r in shard["q_rows"] if r["count"] > 1}, {4})
        self.shard(1)
        packed = self.tensors["q"].reshape(-1, 4, 8)
        np.testing.assert_array_equal(load_file(self.path("rank1"))["q"][:8], packed[[*range(4, 8), *range(16, 20)]])

    def test_tensors_in_other_layouts(self):
        """Cut and put together as they are, with the same rows in each shard as those of the usual layout have."""
        # Name, axes of [batch, tokens, heads, dim] in the whole, and whether a shard has its heads first.
        for layout, axes, heads_first in (("bshd", (0, 1, 2, 3), False), ("bhsd", (0, 2, 1, 3), True), ("sbhd", (1, 0, 2, 3), False),
                                          ("thd", None, False), ("hnd", None, True)):
            with self.subTest(layout=layout):
                self.plan("zigzag")
                save_file(self.tensors, self.path("whole"))
                usual = [self.shard(rank) and load_file(self.path(f"rank{rank}")) for rank in range(3)]
                whole = {"lse": self.tensors["lse"]}
                for name in ("q", "k", "v"):
                    packed = self.tensors[name].reshape(-1, *self.tensors[name].shape[2:])
                    whole[name] = self.tensors[name].transpose(axes) if axes else packed.swapaxes(0, 1) if heads_first else packed
                if not axes:
                    whole["lse"] = np.concatenate(list(self.tensors["lse"]), axis=1)
                whole = {name: np.ascontiguousarray(array) for name, array in whole.items()}
                save_file(whole, self.path("whole"))
                flags = ("--tensor-layout", layout)
                for rank in range(3):
                    self.run_command(*self.words("shard", input="whole", output=f"rank{rank}"), "--rank", str(rank), *flags)
                    got = load_file(self.path(f"rank{rank}"))
                    for name, array in usual[rank].items():
                        turned = heads_first and name != "lse"
                        np.testing.assert_array_equal(got[name], array.swapaxes(0, 1) if turned else array, name)
                ranks = ["rank0", "rank1", "rank2"]
                batch = ("--batch", "2") if axes else ()
                self.run_command(*self.words("unshard", input=ranks, output="back"), *flags, *batch)
                back = load_file(self.path("back"))
                for name, array in whole.items():
                    np.testing.assert_array_equal(back[name], array, name)
                other = "thd" if heads_first else "hnd"
                self.assertIn("shard_layout", self.refused("SHAPE_MISMATCH", *self.words("unshard", input=ranks), "--tensor-layout", other))
                told = self.refused("SHAPE_MISMATCH", *self.words("unshard", input=ranks), *flags, *(() if axes else ("--batch", "2")))
                self.assertIn("SHAPE_MISMATCH: batch: ", told)
        self.refused("SHAPE_MISMATCH", *self.words("shard", input="whole"), "--rank", "0", "--tensor-layout", "bhsd")

    def test_what_a_file_says_goes_along(self):
        self.plan("zigzag")
        save_file(self.tensors, self.path("whole"), {"lse_base": "2", "made": "by hand"})
        for rank in range(3):
            self.shard(rank)
        self.run_command(*self.words("unshard", input=["rank0", "rank1", "rank2"], output="back"))
        said = {"lse_base": "2", "made": "by hand"}
        with safe_open(self.path("rank1"), "numpy") as file:
            notes = file.metadata()
        self.assertEqual((notes.pop("shard_rank"), len(notes.pop("shard_plan")), notes.pop("shard_layout")), ("1", 64, "thd"))
        self.assertEqual(notes, said)
        with safe_open(self.path("back"), "numpy") as file:
            self.assertEqual(file.metadata(), said)
        save_file(load_file(self.path("rank1")), self.path("rank1"), {"lse_base": "e"})
        self.refused("LSE_MISMATCH", *self.words("unshard", input=["rank0", "rank1", "rank2"]))
        save_file(self.tensors, self.path("whole"), {"lse_layout": "tokens-heads"})
        self.refused("LSE_MISMATCH", *self.words("shard", input="whole"), "--rank", "0")

    def refused(self, reason, *arguments):
        """Ends with 3 and one line, but for the fields at fault."""
        done = cluster.annulus(*arguments, "--json")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertEqual(json.loads(done.stdout)["error"]["reason"], reason)
        first, *fields = done.stderr.splitlines()
        self.assertRegex(first, f"^annulus: [A-Z_]+ / {reason}: ")
        for line in fields:
            self.assertRegex(line, r"^  \S+: ")
        self.assertFalse(os.path.exists(self.path("made")))
        return first

    def words(self, verb, **files):
        """A command line of `shard` or `unshard`; a list of files is one flag for each."""
        files = {"plan": "plan", "output": "made", **files}
        return [verb, *(word for flag, names in files.items() for name in ([names] if isinstance(names, str) else names)
                        for word in (f"--{flag}", self.path(name)))]

    def test_shard_refuses_what_does_not_fit_and_leaves_no_file(self):
        self.plan("zigzag")
        told = self.refused("INVALID_RANK", *self.words("shard", input="whole"), "--rank", "3")
        self.assertEqual(told, "annulus: INVALID_ARGUMENT / INVALID_RANK: --rank: 3 is not in the plan, which has ranks 0 to 2")
        shard = ("--rank", "0")
        self.assertIn("missing", self.refused("FILE_NOT_FOUND", *self.words("shard", input="whole", plan="missing"), *shard))
        self.assertIn("missing", self.refused("FILE_NOT_FOUND", *self.words("shard", input="missing"), *shard))
        self.assertIn("plan: not a safetensors", self.refused("BAD_SAFETENSORS", *self.words("shard", input="plan"), *shard))
        with open(self.path("whole"), "rb") as whole, open(self.path("cut"), "wb") as cut:
            cut.write(whole.read()[:-1])
        self.refused("BAD_SAFETENSORS", *self.words("shard", input="cut"), *shard)
        save_file({"lse": np.zeros((4, 65), np.float32)}, self.path("short"))
        self.assertIn("tensor lse: ", self.refused("SHAPE_MISMATCH", *self.words("shard", input="short"), *shard))

    def test_shard_leaves_aside_what_it_is_told_to(self):
        self.plan("zigzag")
        save_file({**self.tensors, "weights": np.zeros((66, 4, 8), np.float32), "step": np.zeros(1)}, self.path("foreign"))
        shard = (*self.words("shard", input="foreign"), "--rank", "0")
        for flags in ((), ("--ignore-tensors", "weights")):
            self.assertIn("; to skip a tensor, name it in --ignore-tensors", self.refused("UNKNOWN_TENSOR", *shard, *flags))
        self.refused("MISSING_TENSOR", *shard, "--ignore-tensors", "weights,step,weird")
        made = self.run_command(*shard, "--ignore-tensors", "weights,step")
        self.assertEqual(made, self.shard(0))

    def test_what_is_no_plan_is_refused(self):
        shard = ("--rank", "0")
        plan = self.plan("zigzag")
        told = self.refused("BAD_PLAN", *self.words("shard", input="whole", plan="whole"), *shard)
        self.assertIn(f"{self.path('whole')}: not a plan of ", told)
        self.refused("BAD_PLAN", *self.words("shard", input="whole", plan="/dev/zero"), *shard)
        plan["shards"][1]["q_rows"] = plan["shards"][0]["q_rows"]
        for reason, bad in (("BAD_PLAN", {"shards": [{"rank": 0, "q_rows": 3}]}), ("INVALID_PLAN", plan)):
            with open(self.path("plan"), "w") as file:
                json.dump(bad, file)
            self.assertIn(f"{self.path('plan')}: ", self.refused(reason, *self.words("shard", input="whole"), *shard))

    def test_unshard_refuses_the_shards_of_other_ranks_and_plans(self):
        self.plan("contiguous")
        for rank in range(3):
            self.shard(rank)
        for ranks in (["rank1", "rank0", "rank2"], ["rank0", "rank0", "rank2"]):
            told = self.refused("INVALID_RANK", *self.words("unshard", input=ranks))
            self.assertRegex(told, f"{self.folder}/rank[01]: the metadata of its file has shard_rank")
        self.plan("striped", "--stripe", "1")
        self.refused("INVALID_PLAN", *self.words("unshard", input=["rank0", "rank1", "rank2"]))

    def test_unshard_refuses_what_is_not_one_file_for_each_rank(self):
        self.plan("zigzag")
        for rank in range(3):
            self.shard(rank)
        ranks = ["rank0", "rank1", "rank2"]
        self.refused("INVALID_RANK", *self.words("unshard", input=ranks[:2]))
        for batch in ("7", "67"):
            self.refused("SHAPE_MISMATCH", *self.words("unshard", input=ranks), "--batch", batch)
        save_file({"q": np.zeros((5, 4, 8), np.float16)}, self.path("rank1"))
        self.refused("MISSING_TENSOR", *self.words("unshard", input=ranks))
        save_file({name: array[:1] for name, array in load_file(self.path("rank2")).items()}, self.path("rank1"))
        self.assertIn("of rank 1", self.refused("SHAPE_MISMATCH", *self.words("unshard", input=ranks)))


if __name__ == "__main__":
    unittest.main()
