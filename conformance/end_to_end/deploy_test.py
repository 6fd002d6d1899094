#!/usr/bin/env python3
"""Checks the files in deploy/: that they are valid, that they give ctxconf no more than it needs, and that ctxconf
understands the command in them.

usage: deploy_test.py SOURCE_DIR BIN_DIR
"""

import configparser
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

try:
    import jsonschema
except ImportError:
    jsonschema = None

SOURCE, BIN = (pathlib.Path(p).resolve() for p in sys.argv[1:3])
del sys.argv[1:3]
SYSTEMD = SOURCE / "deploy" / "systemd"
MANIFEST = SOURCE / "deploy" / "kubernetes" / "daemonset.yaml"
SCHEMA = SOURCE / "conformance" / "end_to_end" / "daemonset.schema.json"
DEADLINE_S = 60


def is_understood(words):
    """Whether ctxconf gets as far as the file, which is in a folder that does not exist."""
    done = subprocess.run([BIN / "ctxconf", *words], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=DEADLINE_S, check=False)
    return (done.returncode, done.stdout) == (2, "") and done.stderr.startswith("ctxconf: --metrics: write: ")


def elsewhere(words):
    """The same command with another file."""
    at = words.index("--metrics") + 1
    return [*words[:at], "/nonexistent/" + os.path.basename(words[at]), *words[at + 1:]], words[at]


def dicts_in(value):
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from dicts_in(inner)


class ServiceTest(unittest.TestCase):
    def setUp(self):
        # In general a unit may have a key several times; these units have each key once.
        self.units = {}
        for name in ("ctxconf-attach.service", "ctxconf-attach.timer"):
            parser = configparser.ConfigParser(interpolation=None)
            parser.optionxform = str
            parser.read(SYSTEMD / name)
            self.units[name] = parser

    def verify(self, name, more=""):
        """What systemd says of a unit to which these lines are added."""
        with tempfile.TemporaryDirectory() as folder:
            for unit in self.units:
                text = (SYSTEMD / unit).read_text(encoding="utf-8").replace("/usr/bin/ctxconf", str(BIN / "ctxconf"))
                (pathlib.Path(folder) / unit).write_text(text + more, encoding="utf-8")
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", os.path.join(folder, name)],
                                  capture_output=True, text=True, timeout=DEADLINE_S, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [line for line in done.stderr.splitlines() if "ctxconf-attach" in line]

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is in the package systemd")
    def test_systemd_finds_no_mistake(self):
        for name in self.units:
            with self.subTest(name):
                self.assertEqual(self.verify(name), [])
                found = self.verify(name, "NoSuchKey=1\n")
                self.assertTrue(any("NoSuchKey" in line for line in found), found)

    def test_the_service_has_one_capability_and_may_write_to_one_folder(self):
        service = self.units["ctxconf-attach.service"]["Service"]
        for name in ("CapabilityBoundingSet", "AmbientCapabilities"):
            self.assertEqual(service[name], "CAP_SYS_PTRACE")
        for name, value in {"NoNewPrivileges": "yes", "ProtectSystem": "strict", "Type": "oneshot"}.items():
            self.assertEqual(service[name], value)
        self.assertIn("MemoryMax", service)
        words, file = elsewhere(service["ExecStart"].split()[1:])
        self.assertEqual(service["ReadWritePaths"], os.path.dirname(file))
        self.assertTrue(file.endswith(".prom"))
        self.assertTrue(is_understood(words))


class DaemonSetTest(unittest.TestCase):
    def setUp(self):
        self.objects = list(yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8")))
        self.pod = self.objects[1]["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]

    @unittest.skipUnless(jsonschema, "needs jsonschema for Python")
    def test_it_has_no_unknown_member(self):
        validator = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
        validator.validate(self.objects)
        for one in dicts_in(self.objects):
            one["hostPid"] = True
            self.assertFalse(validator.is_valid(self.objects), one)
            del one["hostPid"]

    def test_its_parts_belong_together(self):
        namespace, daemon_set = self.objects
        self.assertEqual((namespace["apiVersion"], namespace["kind"]), ("v1", "Namespace"))
        self.assertEqual((daemon_set["apiVersion"], daemon_set["kind"]), ("apps/v1", "DaemonSet"))
        self.assertEqual(daemon_set["metadata"]["namespace"], namespace["metadata"]["name"])
        labels = daemon_set["spec"]["template"]["metadata"]["labels"]
        self.assertLessEqual(daemon_set["spec"]["selector"]["matchLabels"].items(), labels.items())

    def test_the_container_has_one_capability_and_may_write_to_one_folder(self):
        context = self.container["securityContext"]
        self.assertEqual(context["capabilities"], {"drop": ["ALL"], "add": ["SYS_PTRACE"]})
        for name, value in {"privileged": False, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                            "runAsUser": 0}.items():
            self.assertIs(type(context[name]), type(value))
            self.assertEqual(context[name], value)
        self.assertEqual(context["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertEqual(context["appArmorProfile"], {"type": "Unconfined"})
        self.assertEqual(self.pod["tolerations"], [{"operator": "Exists"}])
        self.assertIs(self.pod["hostPID"], True)
        self.assertNotIn("hostNetwork", self.pod)
        self.assertIs(self.pod["automountServiceAccountToken"], False)
        for limit in ("cpu", "memory"):
            self.assertIn(limit, self.container["resources"]["limits"])
        (volume,), (mount,) = self.pod["volumes"], self.container["volumeMounts"]
        self.assertEqual(volume["name"], mount["name"])
        self.assertIn("hostPath", volume)
        _, file = elsewhere(self.container["args"])
        self.assertEqual(os.path.dirname(file), mount["mountPath"])
        self.assertTrue(file.endswith(".prom"))

    def test_ctxconf_understands_its_arguments(self):
        words, _ = elsewhere(self.container["args"])
        self.assertTrue(all(isinstance(word, str) for word in words))
        self.assertIn("--every", words)  # the kubelet would delay more and more restarts
        self.assertTrue(is_understood(words))


if __name__ == "__main__":
    unittest.main()
