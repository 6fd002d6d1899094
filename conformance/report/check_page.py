#!/usr/bin/env python3
"""Loads the HTML report in a headless browser, with and without JavaScript.

usage: check_page.py REPORT_SAMPLES DIRECTORY

Exits 77 where there is no Chromium.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

from page_reader import Page, check_page

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# Uses the page as a person would, and records what is shown.
USE = """
const seen = {};
const note = (what) => {
  seen[what] = [...document.querySelectorAll("details.row:not([hidden])")].map((row) => row.id);
  seen[what + ", sections"] = document.querySelectorAll("section.group:not([hidden])").length;
};
const search = document.getElementById("search");
const type = (text) => { search.value = text; search.dispatchEvent(new Event("input")); };
note("all");
type("  VERSION\\tMUST ");
note("version must");
type("no such text");
note("nothing");
seen["count of nothing"] = document.getElementById("shown").textContent;
location.hash = "#pctx.header.signature";
window.dispatchEvent(new HashChangeEvent("hashchange"));
note("after a link");
seen["linked is open"] = document.getElementById("pctx.header.signature").open;
seen["focus"] = document.activeElement.closest("details").id;
for (const box of document.querySelectorAll("#outcomes input")) if (box.value !== "fail") box.click();
note("only fail");
document.getElementById("close-all").click();
seen["open after closing"] = document.querySelectorAll("details.row[open]:not([hidden])").length;
document.getElementById("open-all").click();
seen["open after opening"] = document.querySelectorAll("details.row[open]:not([hidden])").length;
const pictures = [...document.querySelectorAll("svg.operation")];
seen["pictures"] = pictures.length;
seen["wrong steps"] = pictures.map((picture) => picture.querySelectorAll("circle.wrong").length);
// What is drawn lies in the picture, and what is wider than the page is scrolled in its own frame.
const inside = (picture, part) => {
  const [frame, box] = [picture.getBoundingClientRect(), part.getBoundingClientRect()];
  return box.left >= frame.left - 1 && box.right <= frame.right + 1 && box.top >= frame.top - 1 &&
    box.bottom <= frame.bottom + 1;
};
seen["drawn outside"] = pictures.flatMap((picture) =>
  [...picture.querySelectorAll("text, circle, rect, path, line")].filter((part) => !inside(picture, part)))
  .map((part) => part.textContent);
document.body.style.width = "390px";
seen["wider than a phone"] = document.getElementById("requirements").scrollWidth > 390;
document.title = JSON.stringify(seen);
"""


def dom(browser, page, scripts):
    """The page after loading, and what the browser complained about."""
    profile = page.parent / f"profile-{page.stem}-{scripts}"
    (profile / "Default").mkdir(parents=True)
    setting = {} if scripts else {"profile": {"default_content_setting_values": {"javascript": 2}}}
    (profile / "Default" / "Preferences").write_text(json.dumps(setting))
    child = subprocess.Popen(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--disable-background-networking", "--disable-component-update", "--no-first-run",
         "--enable-logging=stderr", f"--user-data-dir={profile}", "--dump-dom", page.as_uri()],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", start_new_session=True)
    try:
        out, err = child.communicate(timeout=60)
    finally:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    assert child.returncode == 0, f"{browser} ended with {child.returncode}: {err[-2000:]}"
    return out, [line for line in err.splitlines() if "CONSOLE" in line]


def check_hostile(written, text, scripts):
    page = check_page("the hostile page in the browser", text)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in written.elements], "another tree"
    (tools,) = [d for d in page.all("div") if d.get("id") == "tools"]
    assert ("hidden" in tools) != scripts, f"scripts: {scripts}, {tools}"
    assert not any("hidden" in row for row in page.rows().values())
    # All written text can be read, with and without scripts.
    count = "7 of 7 shown"
    shown = "".join(page.texts)
    assert (count in shown) == scripts
    assert shown.replace(count, "").split() == "".join(written.texts).split()


def check_use(text, complaints, every):
    assert not complaints, complaints
    seen = json.loads(re.search("<title>(.*?)</title>", text, re.S)[1])
    assert seen == {
        "all": every, "all, sections": 5,
        "version must": ["pctx.header.version"], "version must, sections": 1,
        "nothing": [], "nothing, sections": 0, "count of nothing": "0 of 7 shown",
        "after a link": every, "after a link, sections": 5, "linked is open": True,
        "focus": "pctx.header.signature",
        "only fail": ["pctx.header.version"], "only fail, sections": 1,
        "open after closing": 0, "open after opening": 1,
        "pictures": 2, "wrong steps": [1, 0], "drawn outside": [], "wider than a phone": False,
    }, json.dumps(seen, indent=1)


def main():
    samples, directory = sys.argv[1], pathlib.Path(sys.argv[2]).resolve()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"none of {', '.join(BROWSERS)} is installed")
        return 77
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    subprocess.run([samples, str(directory)], check=True, timeout=100)
    hostile = directory / "hostile.html"
    text = hostile.read_text(encoding="utf-8")
    written = check_page(hostile, text)
    ordinary = (directory / "ordinary.html").read_text(encoding="utf-8")
    using = f"<script>{USE}</script>"
    foreign = directory / "foreign.html"
    foreign.write_text(text.replace("</body>", using + "</body>"), encoding="utf-8")
    free, policies = re.subn('<meta http-equiv="Content-Security-Policy"[^>]*>', "", ordinary)
    assert policies == 1
    used = directory / "used.html"
    used.write_text(free.replace("</body>", using + "</body>"), encoding="utf-8")

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        loads = [pool.submit(dom, browser, page, scripts)
                 for page, scripts in ((foreign, True), (hostile, False), (used, True))]
        with_scripts, without, used = (load.result() for load in loads)
    # The policy allows our style and script, and refuses any other.
    text, complaints = with_scripts
    assert len(complaints) == 1 and "Content Security Policy" in complaints[0], complaints
    assert text.count(using) == 1
    check_hostile(written, text.replace(using, ""), True)
    text, complaints = without
    assert not complaints, complaints
    check_hostile(written, text, False)
    check_use(*used, list(Page(ordinary).rows()))
    print(f"{browser}: the page is right with and without JavaScript")
    return 0


if __name__ == "__main__":
    sys.exit(main())
