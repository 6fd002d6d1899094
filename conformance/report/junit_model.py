"""A model of JUnit as strict as the stricter of Jenkins and GitLab: elements, their order and number,
attributes and their values."""

import re
import xml.etree.ElementTree as ElementTree

from page_reader import check_inert

NUMBER = r"\d{1,9}"
SECONDS = r"\d{1,9}(\.\d{1,3})?"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"
NAME = r"(?s)\S(.{0,1998}\S)?"
TEXT = r"(?s).{0,4000}"
COUNTS = {"tests": NUMBER, "failures": NUMBER, "errors": NUMBER}
# Element: attributes that it must have, others that it may have, children, and whether it has text.
# Children: in this order, each with its least and largest number.
MANY = 10 ** 6
MODEL = {
    "testsuites": (COUNTS, {"name": NAME, "time": SECONDS}, [("testsuite", 1, MANY)], False),
    "testsuite": (COUNTS | {"name": NAME}, {"skipped": NUMBER, "time": SECONDS, "timestamp": TIME},
                  [("properties", 0, 1), ("testcase", 0, MANY), ("system-out", 0, 1),
                   ("system-err", 0, 1)], False),
    "properties": ({}, {}, [("property", 1, MANY)], False),
    "property": ({"name": NAME, "value": TEXT}, {}, [], False),
    "testcase": ({"name": NAME, "classname": NAME}, {"time": SECONDS},
                 [("skipped", 0, 1), ("error", 0, 1), ("failure", 0, 1), ("system-out", 0, 1),
                  ("system-err", 0, 1)], False),
    "skipped": ({"message": TEXT}, {}, [], False),
    "error": ({"type": NAME, "message": TEXT}, {}, [], True),
    "failure": ({"type": NAME, "message": TEXT}, {}, [], True),
    "system-out": ({}, {}, [], True),
    "system-err": ({}, {}, [], True),
}


def check_element(where, element):
    assert element.tag in MODEL, f"{where}: <{element.tag}>"
    required, optional, children, has_text = MODEL[element.tag]
    for name in required:
        assert name in element.attrib, f"{where}: <{element.tag}> has no {name}"
    for name, value in element.attrib.items():
        form = (required | optional).get(name)
        assert form, f"{where}: <{element.tag} {name}>"
        assert re.fullmatch(form, value), f"{where}: <{element.tag} {name}={value[:200]!r}>"
        check_inert(where, value)
    check_inert(where, element.text or "")
    assert has_text or not (element.text or "").strip(), f"{where}: text in <{element.tag}>"
    left = [child.tag for child in element]
    for tag, least, most in children:
        count = 0
        while left and left[0] == tag:
            del left[0]
            count += 1
        assert least <= count <= most, f"{where}: {count} <{tag}> in <{element.tag}>"
    assert not left, f"{where}: <{left[0]}> in <{element.tag}>, or not at this place"
    for child in element:
        check_element(where, child)
        assert not (child.tail or "").strip(), f"{where}: text in <{element.tag}>"


def check_junit(where, data):
    """Returns the only suite, its cases and its properties."""
    # Java's reader refuses declarations, and our reports define no entities.
    assert b"<!" not in data, f"{where}: a declaration or CDATA"
    assert data.startswith(b'<?xml version="1.0" encoding="UTF-8"?>\n'), where
    data.decode("utf-8")
    assert len(data) < (16 << 20), f"{where}: {len(data)} bytes"
    suites = ElementTree.fromstring(data)
    assert suites.tag == "testsuites", f"{where}: <{suites.tag}>"
    check_element(where, suites)
    (suite,) = suites
    cases = suite.findall("testcase")
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        want = sum(case.find(tag) is not None for case in cases)
        assert int(suite.get(attribute)) == want, f"{where}: {attribute}"
        assert suites.get(attribute) in (None, suite.get(attribute)), f"{where}: {attribute}"
    assert int(suite.get("tests")) == int(suites.get("tests")) == len(cases), f"{where}: tests"
    for case in cases:
        ends = [end.tag for end in case if end.tag in ("skipped", "error", "failure")]
        assert len(ends) <= 1, f"{where}: {ends}"
    return suite, cases, {p.get("name"): p.get("value") for p in suite.iter("property")}
