"""docs/reference/command-line.md, "Answers in JSON": every key that the commands print, and none that they do not."""

import json
import os
import re
import tempfile

from tests.end_to_end.harness import cluster
from tests.end_to_end.harness.service_case import ServiceCase

# Printed only where something is lost, or by jobs of their own.
RARE = {"stats_partial", "used", "release_unconfirmed", "d_bias_whole", "message", "execution"}
BY_NAME = {"tensors"}  # Objects whose keys are names of tensors.


def keys_of(answer):
    if isinstance(answer, list):
        return set().union(*map(keys_of, answer), set())
    if not isinstance(answer, dict):
        return set()
    inner = [keys_of(value) for key, value in answer.items() if key not in BY_NAME]
    return set(answer).union(*inner)


def documented():
    with open("docs/reference/command-line.md", encoding="utf-8") as file:
        section = re.search(r"\n## Answers in JSON\n(.*?)\n## ", file.read(), re.S).group(1)
    cells = [row.split("|")[2] for row in section.splitlines() if row.startswith("| ")]
    return set(re.findall(r"`([a-z0-9_]+)`", " ".join(cells)))


class JsonAnswersTest(ServiceCase):
    FLAGS = ("--threads", "1")

    def answer(self, *arguments, asks=True):
        run = self.service.annulus if asks else cluster.annulus
        done = run(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_keys_are_those_of_the_page(self):
        with tempfile.TemporaryDirectory() as home:
            inside = lambda name: os.path.join(home, name)
            synthetic = ("--synthetic", "1,64,64,2,1,16,fp32,3")
            first = self.answer("attend", *synthetic, "--output", inside("a"), "--verify", "2", "--keep-for", "30s")
            plan = self.answer("plan", *synthetic, "--world-size", "2")
            with open(inside("plan"), "w", encoding="utf-8") as file:
                json.dump(plan, file)
            parts = ("--plan", inside("plan"), "--output")
            answers = [
                first,
                plan,
                self.answer("cluster"),
                self.answer("attend", *synthetic, "--output", inside("b"), "--mask", "causal"),
                self.answer("gradients", "--synthetic", "1,8,8,1,1,16,fp32,3", "--verify", "2"),
                self.answer("merge", "--lse-base", "e", "--input", inside("a"), "--input", inside("b"),
                            "--output", inside("c")),
                self.answer("release", "--handle", first["job_id"]),
                self.answer("cancel", "--job", first["job_id"]),
                self.answer("shard", *parts, inside("0"), "--rank", "0", "--input", inside("a"), asks=False),
                self.answer("shard", *parts, inside("1"), "--rank", "1", "--input", inside("a"), asks=False),
                self.answer("unshard", *parts, inside("d"), "--input", inside("0"), "--input", inside("1"),
                            asks=False),
            ]
        told = {re.sub(r"^[a-z_]+_crc32c$", "output_crc32c", key) for key in keys_of(answers)}
        page = documented()
        self.assertEqual(told - page, set(), "not on the page")
        self.assertEqual(page - told - RARE, set(), "on the page, and not printed")
