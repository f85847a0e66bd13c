"""The manifests give the programs no flag that they do not know."""

import re
import subprocess
import unittest

import yaml

MANIFESTS = ("deploy/base/coordinator.yaml", "deploy/base/worker.yaml", "deploy/gpu/worker.yaml")


class FlagsTest(unittest.TestCase):
    def test_every_flag_of_the_manifests_is_in_the_help_of_its_program(self):
        seen = set()
        for path in MANIFESTS:
            with open(path, encoding="utf-8") as file:
                manifests = list(yaml.safe_load_all(file))
            for manifest in manifests:
                template = manifest["spec"].get("template", {"spec": {"containers": []}})
                for container in template["spec"]["containers"]:
                    (program,) = container.get("command", ["annulus-worker"])  # A patch of the worker.
                    seen.add(program)
                    help_text = subprocess.run(
                        [f"bin/{program}", "--help"], capture_output=True, text=True, timeout=30
                    ).stdout
                    known = set(re.findall(r"--[a-z-]+", help_text))
                    for argument in container["args"]:
                        with self.subTest(program=program, argument=argument):
                            self.assertIn(argument.split("=")[0], known)
        self.assertEqual(seen, {"annulus-coordinator", "annulus-worker"})

    def test_a_coordinator_knows_what_the_overlay_adds(self):
        with open("deploy/gpu/kustomization.yaml", encoding="utf-8") as file:
            added = re.findall(r"value: (--\S+)", file.read())
        self.assertEqual(added, ["--device-kind=cuda"])
        # A right flag before a wrong one is passed over.
        for flags, complaint in (([added[0], "--no-such-flag"], "--no-such-flag"), (["--device-kind=gpu"], "--device-kind")):
            with self.subTest(flags=flags):
                command = ["bin/annulus-coordinator", *flags]
                done = subprocess.run(command, capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, 2)
                self.assertIn(complaint, done.stderr)

    def test_a_wrong_flag_ends_with_one_line_and_two(self):
        for program in ("annulus", "annulus-coordinator", "annulus-worker"):
            with self.subTest(program=program):
                done = subprocess.run(
                    [f"bin/{program}", "--no-such-flag"], capture_output=True, text=True, timeout=30
                )
                self.assertEqual(done.returncode, 2)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
