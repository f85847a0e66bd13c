"""The Kubernetes manifests render, are valid, and agree with one another."""

import os
import re
import subprocess
import tempfile
import unittest

import yaml

KUBECTL = "external/python_tools/kubectl"
VALIDATE = "external/python_tools/kubernetes-validate"
# The versions of Kubernetes whose schemas the manifests must pass.
VERSIONS = ("1.30", "1.34")


def render(folder):
    # kubectl refuses a kustomization that is reached through links out of its folder, and Bazel's
    # test tree consists of them.
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as copy:
        subprocess.run(["cp", "-rL", os.path.dirname(folder), copy], check=True)
        done = subprocess.run(
            [KUBECTL, "kustomize", os.path.join(copy, folder)],
            env={"HOME": copy, "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            timeout=60,
        )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


def validate(text, version):
    """kubernetes-validate's exit code and output."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", dir=os.environ.get("TEST_TMPDIR")) as file:
        file.write(text)
        file.flush()
        done = subprocess.run(
            [VALIDATE, "--strict", "--kubernetes-version", version, file.name],
            capture_output=True,
            text=True,
            timeout=120,
        )
    return done.returncode, done.stdout + done.stderr


class ManifestsTest(unittest.TestCase):
    FOLDER = "deploy/base"

    @classmethod
    def setUpClass(cls):
        cls.text = render(cls.FOLDER)
        cls.all = {(d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(cls.text)}
        cls.pods = {
            name: manifest["spec"]["template"]
            for (kind, name), manifest in cls.all.items()
            if kind in ("Deployment", "StatefulSet")
        }

    def container(self, name):
        (container,) = self.pods[name]["spec"]["containers"]
        return container

    def pods_of(self, selector):
        return [
            name
            for name, pod in self.pods.items()
            if selector.items() <= pod["metadata"]["labels"].items()
        ]

    def test_the_schemas_hold_strictly(self):
        for version in VERSIONS:
            with self.subTest(version=version):
                code, output = validate(self.text, version)
                self.assertEqual(code, 0, output)

    def test_validation_refuses_an_unknown_field(self):
        code, output = validate(self.text.replace("readOnlyRootFilesystem", "readOnlyRoot"), "1.30")
        self.assertNotEqual(code, 0, output)

    def test_everything_that_the_base_promises_is_there(self):
        self.assertLessEqual(
            {
                ("Deployment", "annulus-coordinator"),
                ("Service", "annulus"),
                ("Service", "annulus-control"),
                ("StatefulSet", "annulus-worker"),
                ("Service", "annulus-worker"),
                ("PodDisruptionBudget", "annulus-worker"),
                ("NetworkPolicy", "annulus-coordinator"),
                ("NetworkPolicy", "annulus-worker"),
            },
            set(self.all),
        )

    def test_workers_find_a_coordinator_that_is_not_ready(self):
        control = self.all["Service", "annulus-control"]["spec"]
        self.assertTrue(control["publishNotReadyAddresses"])
        self.assertIn("--coordinator=annulus-control:8003", self.container("annulus-worker")["args"])
        stateful_set = self.all["StatefulSet", "annulus-worker"]["spec"]
        self.assertEqual(self.all["Service", stateful_set["serviceName"]]["spec"]["clusterIP"], "None")

    def test_every_service_leads_to_a_port_of_a_pod(self):
        for (kind, name), manifest in self.all.items():
            if kind != "Service":
                continue
            with self.subTest(service=name):
                (pod,) = self.pods_of(manifest["spec"]["selector"])
                ports = {p["name"]: p["containerPort"] for p in self.container(pod)["ports"]}
                for port in manifest["spec"]["ports"]:
                    self.assertEqual(ports[port["targetPort"]], port["port"])

    def test_pods_are_restricted(self):
        for name, pod in self.pods.items():
            with self.subTest(pod=name):
                self.assertFalse(pod["spec"]["automountServiceAccountToken"])
                of_pod = pod["spec"]["securityContext"]
                self.assertTrue(of_pod["runAsNonRoot"])
                self.assertEqual(of_pod["runAsUser"], 10001)
                self.assertEqual(of_pod["seccompProfile"]["type"], "RuntimeDefault")
                of_container = self.container(name)["securityContext"]
                self.assertFalse(of_container["allowPrivilegeEscalation"])
                self.assertTrue(of_container["readOnlyRootFilesystem"])
                self.assertEqual(of_container["capabilities"]["drop"], ["ALL"])

    def test_pods_have_probes_on_a_port_that_they_open_and_resources(self):
        for name in self.pods:
            container = self.container(name)
            ports = [port["containerPort"] for port in container["ports"]]
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                with self.subTest(pod=name, probe=probe):
                    self.assertIn(container[probe]["grpc"]["port"], ports)
            self.assertEqual(container["readinessProbe"]["grpc"]["service"], "readiness")
            self.assertIn("memory", container["resources"]["limits"])
            self.assertIn("cpu", container["resources"]["requests"])

    def test_what_clients_can_make_the_coordinator_hold_fits_its_memory(self):
        container = self.container("annulus-coordinator")
        flags = dict(argument.lstrip("-").split("=", 1) for argument in container["args"])
        workers = self.all["StatefulSet", "annulus-worker"]["spec"]["replicas"]

        def mib(flag):
            self.assertTrue(flags[flag].endswith("MiB"), flags[flag])
            return int(flags[flag][:-3])

        # Requests of jobs, and as much of dry runs.
        held = 2 * mib("max-request-bytes") + mib("max-inline-bytes")
        held += int(flags["max-attend-calls"]) * (4 + workers)
        # Answers whose callers do not read them (proto/rpc/slow_reader_guard.h).
        held += 256 + 8192 * 10 // 1024
        limit = container["resources"]["limits"]["memory"]
        self.assertTrue(limit.endswith("Mi"), limit)
        self.assertLessEqual(held + 256, int(limit[:-2]), "with 256 MiB for the rest")

    def test_every_port_but_health_passes_the_network_policies(self):
        for name in self.pods:
            policy = self.all["NetworkPolicy", name]["spec"]
            self.assertEqual(self.pods_of(policy["podSelector"]["matchLabels"]), [name])
            opened = {p["port"] for rule in policy["ingress"] for p in rule["ports"]}
            for port in self.container(name)["ports"]:
                with self.subTest(pod=name, port=port["name"]):
                    self.assertEqual(port["containerPort"] in opened, port["name"] != "health")

    def test_gloo_uses_the_ports_that_the_policy_opens(self):
        (sysctl,) = self.pods["annulus-worker"]["spec"]["securityContext"]["sysctls"]
        self.assertEqual(sysctl["name"], "net.ipv4.ip_local_port_range")
        wanted = tuple(int(port) for port in sysctl["value"].split())
        policy = self.all["NetworkPolicy", "annulus-worker"]["spec"]
        for direction in ("ingress", "egress"):
            ranges = [
                (port["port"], port["endPort"])
                for rule in policy[direction]
                for port in rule["ports"]
                if "endPort" in port
            ]
            self.assertEqual(ranges, [wanted])


class GpuManifestsTest(ManifestsTest):
    """All of that of the overlay with GPUs, and what it is for."""

    FOLDER = "deploy/gpu"

    def flags(self, name):
        return dict(argument.lstrip("-").split("=", 1) for argument in self.container(name)["args"])

    def test_each_worker_has_a_gpu_and_the_coordinator_none(self):
        resources = self.container("annulus-worker")["resources"]
        self.assertEqual((resources["limits"]["nvidia.com/gpu"], resources["requests"]["nvidia.com/gpu"]), ("1", "1"))
        self.assertNotIn("nvidia.com/gpu", self.container("annulus-coordinator")["resources"]["limits"])
        self.assertEqual(self.flags("annulus-worker")["device"], "cuda:0")
        self.assertEqual(self.flags("annulus-coordinator")["device-kind"], "cuda")
        self.assertIn({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                      self.pods["annulus-worker"]["spec"]["tolerations"])
        self.assertNotIn("affinity", self.pods["annulus-coordinator"]["spec"])
        self.assertEqual(list(self.pods["annulus-worker"]["spec"]["affinity"]), ["podAffinity"])

    def test_the_overlay_says_all_that_the_base_says_to_workers(self):
        base = next(d for d in yaml.safe_load_all(render("deploy/base")) if d["kind"] == "StatefulSet")
        (container,) = base["spec"]["template"]["spec"]["containers"]
        said = {argument.lstrip("-").split("=", 1)[0] for argument in container["args"]}
        self.assertEqual(set(self.flags("annulus-worker")) - said, {"device", "locality"})
        self.assertEqual(said - set(self.flags("annulus-worker")), set())
        names = {variable["name"] for variable in self.container("annulus-worker")["env"]}
        self.assertLessEqual({"POD_NAME", "POD_IP", "NODE_NAME", "NCCL_RAS_ENABLE"}, names)

    def test_shared_memory_is_memory_and_fits_the_limit_beside_staging(self):
        volumes = {volume["name"]: volume["emptyDir"] for volume in self.pods["annulus-worker"]["spec"]["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in self.container("annulus-worker")["volumeMounts"]}
        shared = volumes[mounts["/dev/shm"]]
        self.assertEqual(shared["medium"], "Memory")
        staging = self.flags("annulus-worker")["staging-bytes"]
        limit = self.container("annulus-worker")["resources"]["limits"]["memory"]
        gib = [int(text.removesuffix("GiB").removesuffix("Gi")) for text in (shared["sizeLimit"], staging, limit)]
        self.assertGreaterEqual(gib[0], 1)
        # Memory that does not fit into pinned staging is allocated besides, up to as much again.
        self.assertLessEqual(gib[0] + 2 * gib[1] + 4, gib[2], "with 4 GiB for the rest")

    def test_a_worker_may_take_minutes_to_start(self):
        probe = self.container("annulus-worker")["startupProbe"]
        self.assertGreaterEqual(probe["periodSeconds"] * probe["failureThreshold"], 300)
        self.assertEqual(probe["grpc"]["service"], "liveness")

    def test_its_image_has_what_the_other_has_and_nccl(self):
        def packages(path):
            with open(path, encoding="utf-8") as file:
                return set(re.findall(r"\blib[a-z+]+[0-9][0-9.]*", file.read()))

        plain, gpu = packages("deploy/Dockerfile"), packages("deploy/gpu.Dockerfile")
        self.assertTrue(plain)
        self.assertLessEqual(plain, gpu)
        with open("deploy/gpu.Dockerfile", encoding="utf-8") as file:
            self.assertIn("libnccl.so.2 /usr/local/lib/", file.read())
        self.assertTrue(self.container("annulus-worker")["image"].startswith("annulus-gpu:"))
        self.assertTrue(self.container("annulus-coordinator")["image"].startswith("annulus:"))


if __name__ == "__main__":
    unittest.main()
