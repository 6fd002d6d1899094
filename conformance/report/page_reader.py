"""Reads a page of the HTML report with an independent parser, and refuses what a page must not have."""

import base64
import hashlib
import html.parser
import re
import unicodedata

VOID = {"br", "input", "meta"}
# All elements of a page, with their allowed attributes. No text of a run may add one; the hostile run
# is full of them.
ELEMENTS = {
    "html": {"lang"}, "head": set(), "body": set(), "title": set(), "style": set(), "script": set(),
    "meta": {"charset", "name", "content", "http-equiv"}, "a": {"class", "href"},
    "header": set(), "main": {"id"}, "footer": set(), "nav": {"aria-label"},
    "section": {"id", "class", "aria-labelledby"},
    "div": {"class", "id", "role", "aria-label", "hidden", "tabindex"},
    "h1": set(), "h2": {"id"}, "h3": set(), "h4": set(), "h5": set(), "p": {"class"},
    "ul": {"class"}, "li": set(), "dl": {"class"}, "dt": set(), "dd": {"class"},
    "span": {"class"}, "strong": {"class"}, "code": {"class"}, "mark": set(), "br": set(),
    "pre": {"class", "tabindex", "role", "aria-label"}, "figure": {"class"}, "figcaption": set(),
    "table": {"class"}, "caption": set(), "thead": set(), "tbody": set(), "tr": set(),
    "th": {"scope"}, "td": {"class"}, "details": {"class", "id", "data-outcome", "open", "hidden"},
    "summary": set(), "label": set(), "fieldset": {"id"}, "legend": set(),
    "input": {"id", "type", "value", "checked", "placeholder", "autocomplete", "spellcheck"},
    "button": {"type", "id"}, "output": {"id", "for"},
    "svg": {"class", "width", "height", "viewbox", "preserveaspectratio", "role", "aria-label"},
    "desc": set(), "rect": {"class", "x", "y", "width", "height"},
    "line": {"class", "x1", "y1", "x2", "y2"}, "circle": {"class", "cx", "cy", "r"},
    "path": {"class", "d"}, "text": {"class", "x", "y"}, "tspan": {"class"},
}


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements = []  # (tag, attributes), in order
        self.texts = []  # outside of style and script
        self.raw = {"style": [], "script": []}
        self.open = []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        assert tag in ELEMENTS, f"an element <{tag}> at {self.getpos()}"
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names) and set(names) <= ELEMENTS[tag], f"<{tag} {names}>"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        (self.raw[self.open[-1]] if self.open and self.open[-1] in self.raw else self.texts).append(data)

    def handle_comment(self, data):
        raise AssertionError(f"a comment: {data}")

    def handle_pi(self, data):
        raise AssertionError(f"an instruction: {data}")

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    def rows(self):
        return {row["id"]: row for row in self.all("details") if "id" in row}


def policy_hash(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def check_inert(where, text):
    for character in set(text):
        assert character == "\n" or unicodedata.category(character) not in (
            "Cc", "Cf", "Cs", "Zl", "Zp"), f"{where}: {character!r}"


def check_page(where, text):
    """Checks a page as written, or as a browser has it after loading."""
    page = Page(text)
    check_inert(where, "".join(page.texts))
    for _, attributes in page.elements:
        for value in attributes.values():
            check_inert(where, value or "")

    # Nothing is fetched: no attribute can fetch (ELEMENTS), the style has no URLs, and the policy
    # allows only this style and this script.
    (style,), (script,) = page.raw["style"], page.raw["script"]
    assert len(page.all("style")) == len(page.all("script")) == 1, where
    assert not re.search(r"url\(|@import|image-set|src\s*:", style), where
    (policy,) = [m["content"] for m in page.all("meta") if "http-equiv" in m]
    assert policy == (f"default-src 'none'; style-src {policy_hash(style)}; script-src "
                      f"{policy_hash(script)}; base-uri 'none'; form-action 'none'"), where

    # Links lead into the page, and every referenced id exists.
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids), where
    for link in page.all("a"):
        assert link["href"][0] == "#" and link["href"][1:] in ids, f"{where}: {link}"
    for _, attributes in page.elements:
        for name in ("aria-labelledby", "for"):
            assert set((attributes.get(name) or "").split()) <= set(ids), f"{where}: {attributes}"

    # Each landmark occurs once, headings have no gaps, and unnamed elements get names.
    for tag in ("header", "main", "nav", "footer", "h1", "title"):
        assert len(page.all(tag)) == 1, f"{where}: <{tag}>"
    assert page.all("html")[0]["lang"] == "en", where
    level = 0
    for tag, attributes in page.elements:
        if re.fullmatch("h[1-6]", tag):
            assert int(tag[1]) <= level + 1, f"{where}: {tag} below h{level}"
            level = int(tag[1])
        if "tabindex" in attributes or attributes.get("role") in ("img", "search", "region"):
            assert attributes["role"] and attributes["aria-label"], f"{where}: {attributes}"
    assert len(page.all("label")) == len(page.all("input")), where
    assert len(page.all("summary")) == len(page.all("details")), where
    return page


def luminance(colour):
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def check_contrast(style):
    schemes = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
               for block in re.findall(r":root \{(.*?)\}", style, re.S)]
    assert len(schemes) == 2 and schemes[0].keys() == schemes[1].keys(), schemes
    colours = ("fail", "warn", "info", "pass", "quiet")
    pairs = [(text, back) for text in ("fg", "muted", "link", *colours) for back in ("bg", "panel")]
    pairs += [(text, "shade") for text in ("fg", "muted", "fail")]
    pairs += [(text, "mark-bg") for text in ("fg", "fail")]
    pairs += [("on", colour) for colour in colours] + [("mark", "mark-bg")]
    for scheme in schemes:
        for text, back in pairs:
            light, dark = sorted((luminance(scheme[text]), luminance(scheme[back])), reverse=True)
            ratio = (light + 0.05) / (dark + 0.05)
            assert ratio >= 4.5, f"{text} on {back}: {ratio:.2f}"
