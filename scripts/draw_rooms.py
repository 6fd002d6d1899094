#!/usr/bin/env python3
"""Draws the rooms of conformance/ and the arrows between them, from the table in check_layering.py.

  draw_rooms.py           writes docs/architecture.svg
  draw_rooms.py --check   fails if the file is not what would be written
"""
import pathlib
import sys

from check_layering import ROOMS

PURPOSE = {
    "text": "JSON and ASCII helpers",
    "requirements": "the catalogue, and drift",
    "evidence": "what a recording holds",
    "payload": "the protobuf payload",
    "elf": "facts about ELF files",
    "verdict": "outcomes, floors, exit codes",
    "faults": "calls that are made to fail",
    "rules": "one function per requirement",
    "judge": "from evidence to a result",
    "observe": "instruments and event loop",
    "puppet": "scripted process",
    "testee": "adapters, what run asks",
    "reader": "scenes for readers",
    "report": "console, page, JUnit, JSON",
    "command": "one file per command",
}
WIDTH, HEIGHT = 190, 46
GAP_X, GAP_Y = 24, 44
MARGIN = 16


def reaches(room, target, below):
    return target in below[room] or any(reaches(next_room, target, below) for next_room in below[room])


def needed_arrows(below):
    """An arrow is left out where others lead there too."""
    return [(room, to) for room in below for to in sorted(below[room])
            if not any(reaches(other, to, below) for other in below[room] - {to})]


def levels_of(below):
    level = {}
    for room in below:  # the rooms below it come first
        level[room] = 1 + max((level[to] for to in below[room]), default=-1)
    return level


def places_of(below):
    level = levels_of(below)
    rows = [[room for room in below if level[room] == n] for n in range(max(level.values()) + 1)]
    columns = max(len(row) for row in rows)
    at = {}
    for n, row in enumerate(rows):
        # Each room near the middle of those that it leads to.
        if n > 0:
            row.sort(key=lambda room: sum(at[to][0] for to in sorted(below[room])) / max(1, len(below[room])))
        left = MARGIN + (columns - len(row)) * (WIDTH + GAP_X) / 2
        for column, room in enumerate(row):
            at[room] = (left + column * (WIDTH + GAP_X), MARGIN + (len(rows) - 1 - n) * (HEIGHT + GAP_Y))
    size = (2 * MARGIN + columns * WIDTH + (columns - 1) * GAP_X,
            2 * MARGIN + len(rows) * HEIGHT + (len(rows) - 1) * GAP_Y)
    return at, size


def drawing(below):
    at, (width, height) = places_of(below)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
           f'height="{height:g}" font-family="sans-serif" role="img" '
           'aria-label="The rooms of conformance/ and which may include which">',
           '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
           'orient="auto"><path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>',
           f'<rect width="{width:g}" height="{height:g}" fill="#fff"/>']
    for room, to in needed_arrows(below):
        (x, y), (to_x, to_y) = at[room], at[to]
        begin_y = y + HEIGHT
        x, to_x = x + WIDTH / 2, to_x + WIDTH / 2
        bend = (to_y - begin_y) / 2
        out.append(f'<path d="M{x:g} {begin_y:g}C{x:g} {begin_y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y - 2:g}" '
                   'fill="none" stroke="#99a" stroke-width="1.2" marker-end="url(#tip)"/>')
    for room, (x, y) in at.items():
        out.append(f'<rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#eef3fa" stroke="#456"/>')
        out.append(f'<text x="{x + WIDTH / 2:g}" y="{y + 19:g}" text-anchor="middle" font-size="14" '
                   f'font-weight="bold" fill="#123">{room}</text>')
        out.append(f'<text x="{x + WIDTH / 2:g}" y="{y + 36:g}" text-anchor="middle" font-size="11" '
                   f'fill="#345">{PURPOSE[room]}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def check_rooms():
    """Each room of the layering has a purpose here, no other has, and each may include only rooms before it."""
    for room in ROOMS.keys() - PURPOSE.keys():
        sys.exit(f"draw_rooms.py: the room {room} of ROOMS in check_layering.py has no purpose here: add it to PURPOSE")
    for room in PURPOSE.keys() - ROOMS.keys():
        sys.exit(f"draw_rooms.py: the room {room} has a purpose here and is not in ROOMS of check_layering.py")
    before = set()
    for room, below in ROOMS.items():
        for other in sorted(below - before):
            sys.exit(f"draw_rooms.py: {room} may include {other}, which is not before it in ROOMS of check_layering.py")
        before.add(room)


def main():
    check_rooms()
    path = pathlib.Path(__file__).resolve().parent.parent / "docs" / "architecture.svg"
    text = drawing(ROOMS)
    if sys.argv[1:] == ["--check"]:
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            return 0
        print(f"{path.name} does not show the rooms as they are: run scripts/draw_rooms.py")
        return 1
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
