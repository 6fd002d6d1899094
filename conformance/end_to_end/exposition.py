"""A strict parser of the text format of Prometheus: it accepts what ctxconf may write, and nothing else."""

import re

NAME = r"[a-z][a-z0-9_]*"
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\["\\n])*)"')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\d+(?:\.\d+)?)")
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def labels_of(text):
    labels, at = {}, 0
    while at < len(text):
        match = LABEL.match(text, at)
        if not match:
            raise ValueError(f"not a label: {text[at:]!r}")
        name, value = match.groups()
        if name in labels:
            raise ValueError(f"{name} twice: {text!r}")
        labels[name] = re.sub(r'\\["\\n]', lambda m: ESCAPES[m[0]], value)
        at = match.end()
        if at < len(text):
            if text[at] != "," or at + 1 == len(text):
                raise ValueError(f"not a list of labels: {text!r}")
            at += 1
    return labels


def parse(data):
    """{metric: {((label, value), ...): number}} of the bytes of a file."""
    text = data.decode("utf-8")
    if not text.endswith("\n") or re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text):
        raise ValueError("no newline at the end, or a control character")
    metrics, name, typed = {}, None, False
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({NAME}) \S.*\.", line):
            name, typed = match[1], False
            if name in metrics:
                raise ValueError(f"{name} is there twice")
            metrics[name] = {}
        elif match := re.fullmatch(rf"# TYPE ({NAME}) gauge", line):
            if match[1] != name or typed:
                raise ValueError(f"a type in a wrong place: {line!r}")
            typed = True
        elif match := SAMPLE.fullmatch(line):
            if match[1] != name or not typed:
                raise ValueError(f"a sample in a wrong place: {line!r}")
            labels = tuple(sorted(labels_of(match[2] or "").items()))
            if labels in metrics[name]:
                raise ValueError(f"two samples have these labels: {line!r}")
            metrics[name][labels] = float(match[3])
        else:
            raise ValueError(f"not a line of the format: {line!r}")
    return metrics
