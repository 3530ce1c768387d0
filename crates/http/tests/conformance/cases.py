"""Reads the cases of this folder, for scripts that send them to servers: see the head of requests.txt.

    for case in cases("requests.txt"):
        case.name, case.paragraph, case.asked, case.bytes, case.closes, case.expected, case.gate

Run alone, it prints how many cases each file has.
"""

import dataclasses
import pathlib
import re

HERE = pathlib.Path(__file__).parent
SIMPLE = {"r": b"\r", "n": b"\n", "t": b"\t", "\\": b"\\"}


@dataclasses.dataclass
class Case:
    name: str
    paragraph: str
    asked: list = dataclasses.field(default_factory=list)
    bytes: bytes = b""
    closes: bool = False
    expected: list = dataclasses.field(default_factory=list)
    gate: str | None = None


def unescaped(text):
    def one(match):
        escape = match.group(1)
        if escape.startswith("("):
            times, what = escape[1:-1].split("*", 1)
            return (unescaped(what) * int(times)).decode("latin-1")
        if escape.startswith("x"):
            return chr(int(escape[1:], 16))
        return SIMPLE[escape].decode()

    return re.sub(r"\\(\(\d+\*[^)]*\)|x[0-9a-f]{2}|.)", one, text).encode("latin-1")


def cases(name):
    found = []
    for line in (HERE / name).read_text("ascii").splitlines():
        mark, rest = line[:2], line[2:]
        if mark == "# ":
            found.append(Case(*rest.split(" | ")))
        elif mark == "? ":
            found[-1].asked.append(rest)
        elif mark == "> " and rest == "\\$":
            found[-1].closes = True
        elif mark == "> ":
            found[-1].bytes += unescaped(rest)
        elif mark == "< ":
            found[-1].expected.append(unescaped(rest).decode("latin-1"))
        elif mark == "@ ":
            found[-1].gate = rest
    return found


if __name__ == "__main__":
    for file in ("requests.txt", "contents.txt", "responses.txt"):
        print(file, len(cases(file)))
