"""Reads the cases of this folder, for scripts that send them to servers: see the head of requests.txt.

    for case in cases("requests.txt"):
        case.name, case.paragraph, case.asked, case.bytes, case.closes, case.expected, case.gate

Run alone, it prints how many cases each file has. `cases.py head|response|content FOLDER` writes the cases as files,
as seeds of the fuzz target of this name.
"""

import dataclasses
import pathlib
import re
import sys

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


FILES = {"head": "requests.txt", "content": "contents.txt", "response": "responses.txt"}

if __name__ == "__main__":
    if len(sys.argv) == 3:
        for number, case in enumerate(cases(FILES[sys.argv[1]])):
            (pathlib.Path(sys.argv[2]) / f"conformance-{number}").write_bytes(case.bytes)
    else:
        for file in FILES.values():
            print(file, len(cases(file)))
