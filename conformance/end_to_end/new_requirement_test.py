#!/usr/bin/env python3
"""Runs scripts/new-requirement on a copy of the sources.

usage: new_requirement_test.py SOURCE_DIR
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import script_module

SOURCE = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else pathlib.Path()
del sys.argv[1:2]
FOLDERS = ("conformance/requirements", "conformance/rules", "conformance/testees", "conformance/testee",
           "conformance/reader", "scripts")
# For each kind of program, a new requirement and one that is like it, and the places next to the catalogue. Nobody
# adds a requirement of this name.
KINDS = (
    ("pctx.header.of-this-test", "pctx.header.version",
     {"rules/header_rules.cc", "testees/process/header.cc", "testees/process/header.json", "testees/testees_test.py"}),
    ("pctx.naming.of-this-test", "pctx.publish.memfd-name",
     {"rules/call_rules.cc", "testees/process/naming.cc", "testees/process/naming.json", "testees/testees_test.py"}),
    ("pctx.order.of-this-test", "pctx.update.zero-single-store",
     {"rules/store_rules.cc", "testees/process/store_order.cc", "testees/process/store_order.json",
      "testees/testees_test.py"}),
    ("tctx.record.of-this-test", "tctx.record.trace-id",
     {"rules/driven_record_rules.cc", "testees/driven_thread/record.cc", "testees/driven_thread/record.json"}),
    ("tctx.refdata.of-this-test", "tctx.refdata.schema-version-present",
     {"rules/reference_data_rules.cc", "testees/thread/reference_data.cc", "testees/thread/reference_data.json",
      "testees/thread_testees_test.py"}),
    ("tctx.linked.of-this-test", "tctx.tls.fully-static",
     {"rules/tls_rules.cc", "testees/thread/record.cc", "testees/thread/record.json",
      "testees/thread_testees_test.py"}),
    ("pctx.fallback.of-this-test", "pctx.publish.fallback-anon",
     {"rules/fault_rules.cc", "testees/process/failure.cc", "testees/process/failure.json",
      "testees/testees_test.py"}),
    ("pctx.update.of-this-test", "pctx.update.visible",
     {"rules/driven_process_rules.cc", "testees/driven_process/sdk.cc", "testees/driven_process/sdk.json",
      "testee/checks_process.cc"}),
    ("tctx.step.of-this-test", "tctx.attach.complete-before-visible",
     {"rules/slot_step_rules.cc", "testees/driven_record_writer.cc", "testees/driven_record_writer.json"}),
    ("tctx.stores.of-this-test", "tctx.append.size-last",
     {"rules/record_store_rules.cc", "testees/driven_record_writer.cc", "testees/driven_record_writer.json",
      "testee/checks_records.cc"}),
    ("pctx.reader.of-this-test", "pctx.reader.no-permission",
     {"rules/reader_rules.cc", "testees/reader/agent.cc", "testees/reader/agent.json", "reader/scenes_early.cc"}),
    ("tctx.reader.of-this-test", "tctx.reader.one-stop-per-sample",
     {"rules/reader_thread_rules.cc", "testees/reader/thread_sample.cc", "testees/reader/thread_sample.json",
      "reader/scenes_threads.cc"}),
    ("pctx.vector.of-this-test", "pctx.reader.signature-eight-bytes",
     {"rules/reader_rules.cc", "testees/reader/header.cc", "testees/reader/header.json",
      "reader/scenes_payloads.cc"}),
    ("tctx.excluded.of-this-test", "tctx.publish.additive", set()),
)
PAIRS = tuple((new, like) for new, like, places in KINDS if places)


class NewRequirementTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = pathlib.Path(holder.name)
        for folder in FOLDERS:
            shutil.copytree(SOURCE / folder, self.root / folder, ignore=shutil.ignore_patterns("__pycache__"))

    def run_script(self, *args):
        return subprocess.run([self.root / "scripts" / "new-requirement", *args], capture_output=True, text=True,
                              timeout=60, check=False)

    def contents(self):
        return {path: path.read_bytes() for path in self.root.rglob("*") if path.is_file()}

    def test_nothing_is_left_to_do(self):
        done = self.run_script("--check")
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)

    def test_every_place_is_written_and_named(self):
        for new, like, places in KINDS:
            catalogue = "4719-2026-04-07.json" if new.startswith("pctx") else "4947-2026-07-17.json"
            expected = {"conformance/" + place for place in places | {f"requirements/{catalogue}"}}
            before = self.contents()
            done = self.run_script(new, "--like", like, "--dry-run")
            self.assertEqual({line.split(":")[0] for line in done.stdout.splitlines()}, expected, done.stderr)
            self.assertEqual(self.contents(), before)
            again = self.run_script(new, "--like", like)
            self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)
            written = {path.relative_to(self.root).as_posix() for path, data in self.contents().items()
                       if data != before[path]}
            self.assertEqual(written, expected, new)
            to_do = self.run_script("--check")
            self.assertEqual(to_do.returncode, 1)
            named = {line.split(":")[0] for line in to_do.stdout.splitlines()}
            unnamed = expected - named
            # A record of the table of `answers` has nothing to fill in.
            self.assertLessEqual(unnamed, {"conformance/rules/reader_rules.cc"}, new)
            for place in unnamed:
                self.assertIn(f'"{new}", .rule = answers', (self.root / place).read_text(encoding="utf-8"))

    def test_every_requirement_can_be_the_similar_one(self):
        script = script_module.load(SOURCE / "scripts/new-requirement")
        sources = script.Sources(SOURCE)
        entries = [entry for path in sources.matching(script.CATALOGUES, "4*.json")
                   for entry in json.loads(sources.text(path))["requirements"]]
        self.assertGreater(len(entries), 200)
        for entry in entries:
            with self.subTest(entry["id"]):
                sources.changed = {}
                new = entry["id"].split(".")[0] + ".place.of-this-test"
                script.write_places(sources, new, entry["id"])
                wanted = {"catalogue"}
                if not entry["excluded"]:
                    wanted |= {"rule", "program", "list of programs"}
                    wanted |= {"scene"} if entry["role"] == "reader" else set()
                    wanted |= {"check"} if entry["observe"]["modes"] == ["run"] else set()
                    for kind in ("process", "thread"):
                        if any(path.parent.name == kind for path in sources.changed):
                            wanted.add("what is seen")
                self.assertEqual(self.kinds_of_places(sources, script, new), wanted)

    def kinds_of_places(self, sources, script, new):
        """Each place names the requirement, or in the words of its function or program."""
        out = set()
        for path, text in sources.changed.items():
            name = "scene" if path.parent == script.SCENES else "check" if path.parent == script.CHECKS else \
                "rule" if path.parent == script.RULES else "catalogue" if path.parent == script.CATALOGUES else \
                "what is seen" if path.suffix == ".py" else "program" if path.suffix == ".cc" else "list of programs"
            self.assertNotEqual(text, sources.texts.get(path), path)
            self.assertTrue(new in text or script.slug(new) in text or script.slug(new).replace("_", "-") in text, path)
            if path.suffix == ".json":
                json.loads(text)
            out.add(name)
        return out

    def test_a_rule_has_the_parameters_of_its_neighbour(self):
        for new, like, signature in (
                ("pctx.header.of-this-test", "pctx.header.version",
                 "Finding header_of_this_test(const ImageEvidence& /*e*/) {"),
                ("pctx.naming.of-this-test", "pctx.publish.memfd-name",
                 "Finding naming_of_this_test(const ImageEvidence& /*e*/, const Publications& /*all*/) {"),
                ("pctx.order.of-this-test", "pctx.update.zero-single-store",
                 "std::optional<Finding> order_of_this_test(const ImageEvidence& /*e*/, const History& /*all*/, "
                 "Tally& /*tally*/) {")):
            self.run_script(new, "--like", like)
            rules = [path.read_text(encoding="utf-8") for path in (self.root / "conformance/rules").glob("*_rules.cc")]
            self.assertEqual(sum(text.count(signature) for text in rules), 1, new)

    def test_a_rule_inherits_no_member_that_is_about_its_neighbour_alone(self):
        for like, row in (
                ("pctx.publish.survives-file-size-limit",
                 '{.id = "pctx.a.b", .rule = a_b, .rests_on = RestsOn::kStates, '
                 '.under_faults = UnderFaults::kItsSubject},'),
                ("pctx.publish.survives-total-denial",
                 '{.id = "pctx.a.b", .rule = at_faulted_calls<a_b>, .under_faults = UnderFaults::kItsSubject},'),
                ("tctx.tls.symbol-type", '{.id = "tctx.a.b", .rule = a_b, .under_faults = UnderFaults::kJudged},'),
                ("tctx.attach.visible",
                 '{.id = "tctx.a.b", .rule = a_b, .asked_of = AskedOf::kTestee, .rests_on = RestsOn::kOperations, '
                 '.under_faults = UnderFaults::kJudged},'),
                ("pctx.update.old-payload-until-zero",
                 'resting_on_other_calls(store_requirement<a_b, About::kUpdates>( "pctx.a.b")),'),
                ("pctx.reader.default-detection", '{.id = "pctx.a.b", .rule = answers, .trait = "defaults"},')):
            with self.subTest(like):
                script = script_module.load(SOURCE / "scripts/new-requirement")
                sources = script.Sources(self.root)
                script.add_rule(sources, like.split(".")[0] + ".a.b", like)
                text, = sources.changed.values()
                self.assertIn(row, " ".join(text.split()))

    def test_what_holds_for_one_requirement_alone_is_to_do(self):
        for like, members in (("pctx.publish.footprint", {"severity_because"}),
                              ("pctx.reader.decode-after-check", {"unnoticed"}),
                              ("tctx.publish.additive", {"excluded"}), ("pctx.header.version", set())):
            with self.subTest(like):
                script = script_module.load(SOURCE / "scripts/new-requirement")
                sources = script.Sources(self.root)
                new = like.split(".")[0] + ".a.b"
                script.add_to_catalogue(sources, new, like)
                text, = sources.changed.values()
                entry, = (e for e in json.loads(text)["requirements"] if e["id"] == new)
                self.assertEqual({m for m in ("severity_because", "unnoticed", "excluded") if entry.get(m)}, members)
                for member in members:
                    self.assertRegex(entry[member], "^TODO: ")
                self.assertRegex(entry["text"], f"^TODO: .*Correct anchor, .*those of {like}\\.$")

    def test_a_trait_of_another_requirement_is_to_do(self):
        for like, is_to_do in (("pctx.reader.default-detection", True), ("pctx.reader.duplicate-keys", False)):
            script = script_module.load(SOURCE / "scripts/new-requirement")
            sources = script.Sources(self.root)
            script.add_rule(sources, "pctx.a.b", like)
            text, = sources.changed.values()
            self.assertEqual(f"// TODO: its trait is that of {like}" in text, is_to_do)

    def test_a_scene_is_played_in_the_group_of_its_neighbour(self):
        self.run_script("pctx.reader.of-this-test", "--like", "pctx.reader.no-permission")
        text = (self.root / "conformance/reader/scenes_early.cc").read_text(encoding="utf-8")
        group = text[text.index("SceneGroup permission_scenes()"):]
        self.assertEqual(text.count("push_back(reader_of_this_test());"), 1)
        self.assertIn("push_back(reader_of_this_test());", group)

    def test_ctxconf_accepts_the_catalogue(self):
        for new, like in PAIRS:
            self.run_script(new, "--like", like)
        for path in (self.root / "conformance/requirements").glob("4*.json"):
            entries = json.loads(path.read_text(encoding="utf-8"))["requirements"]
            mutants = [entry["mutant"] for entry in entries if not entry["excluded"]]
            self.assertEqual(len(mutants), len(set(mutants)), path.name)
            for entry in entries:  # as catalogue_json.cc demands
                self.assertRegex(entry["check"], "Prints? ", entry["id"])
                self.assertGreaterEqual(len(entry["check"]), 20, entry["id"])
                self.assertGreaterEqual(len(entry["mutant"]), 10, entry["id"])

    def test_the_programs_are_listed(self):
        for new, like in PAIRS:
            self.assertEqual(self.run_script(new, "--like", like).returncode, 0, new)
        lists = self.root / "lists"
        lists.mkdir()
        subprocess.run([sys.executable, self.root / "conformance/testees/mutants.py", self.root, lists], check=True,
                       timeout=60)
        entries = [entry for path in lists.glob("*.json") for entry in json.loads(path.read_text())["mutants"]]
        for new, _ in PAIRS:
            of_it = {entry["kind"]: entry for entry in entries if new in entry["requirements"]}
            self.assertEqual(set(of_it), {"mutant", "variant"}, new)
            self.assertIn(new, of_it["mutant"]["expect"])

    def test_a_program_has_the_members_of_its_neighbours(self):
        rows = re.compile(r'^    \{"([^"]*)",\s*(?:"[^"]*"\s*)+((?:[^{}"]|\{[^{}]*\})*)\},$', re.M)
        for new, like in PAIRS:
            if like == "tctx.tls.fully-static":
                continue  # its broken program is not a case of a table
            self.run_script(new, "--like", like)
            changed = [path.read_text() for path in (self.root / "conformance/testees").rglob("*.cc")
                       if f'{{"{new}"' in path.read_text()]
            self.assertEqual(len(changed), 1, new)
            members = {name: " ".join(re.sub(r"(?:bad|good)_\w+(<.*>)?", "function", more, flags=re.S).split())
                       for name, more in rows.findall(changed[0])}
            for name in (new, re.sub("[^a-z0-9]", "-", new.split(".", 1)[1])):
                mine = members.pop(name)
                self.assertIn(mine, members.values(), name)

    def test_a_program_is_in_the_file_of_its_topic(self):
        for new, like, file in (
                ("pctx.header.of-this-test", "pctx.header.version", "process/header.cc"),
                ("tctx.refdata.of-this-test", "tctx.refdata.schema-version-present", "thread/reference_data.cc")):
            done = self.run_script(new, "--like", like)
            self.assertIn(f"/{file}: fill in", done.stdout, done.stderr)

    def test_what_cannot_be_added_changes_nothing(self):
        before = self.contents()
        for args, text in ((("pctx.header.of-this-test", "--like", "pctx.no.such"), "no catalogue has pctx.no.such"),
                           (("pctx.header.version", "--like", "pctx.header.signature"), "already"),
                           (("tctx.a.b", "--like", "pctx.header.version"), "different OTEPs"),
                           (("version", "--like", "pctx.header.version"), "is not an id"),
                           (("pctx.header.of-this-test",), "--like OTHER")):
            done = self.run_script(*args)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(text, done.stderr)
            self.assertEqual(self.contents(), before)


if __name__ == "__main__":
    unittest.main()
