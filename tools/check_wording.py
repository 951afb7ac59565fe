"""Find phrases that our style avoids, with what to write instead: ``python tools/check_wording.py [FILES]``.

Without files, every tracked text file is read. A line that must keep a phrase ends in a comment ``wording: keep``.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SUFFIXES = {".py", ".md", ".rst", ".js", ".html", ".yaml", ".yml", ".toml", ".jinja"}
ELSEWHERE = ("checkpoints/bundled/", "tests/data/", "tools/check_wording.py", "CHANGELOG.md", "UPGRADING.md")
BANNED = {
    r'"""(What|Whether|How) ': 'begin a docstring with a verb or a noun phrase: "Return whether ..."',
    r'"""(And|Says|Tells|Gives|Lets|Takes|Refuse) ': 'begin a docstring with "Return ..." or a noun phrase',
    r"\bshipped (model|checkpoint|name|card)s?\b": 'write "bundled"',
    r"\bcome back later\b": 'write "try again later"',
    r"\b(of|on) a core\b": 'write "on one CPU core" or "core-minutes"',
    r"\bat hand\b": 'write "available locally" or "not downloaded"',
    r"\banew\b": 'write "again" or "from scratch"',
    r"\b[Mm]end(s|ed|ing)?\b": 'write "fix"',
    r"\bone's own\b": 'write "your own"',
    r"\btold\b": 'write "stated", "given" or name the thing: metadata, message, labels',
    r"\bput aside\b": 'write "delete" or "move to trash"',
    r"\b(go|goes|went) on\b": 'write "resume" or "continue"',
    r"\bwants (a|an|its|the|to)\b": 'write "needs" or "requires"',
    r"(?<!there )\b(is|are|be) none\b": 'write "there is no ..."',
    r"\bleft to the seed\b": 'write "varies across seeds"',
    r"\bsign of life\b": 'write "no progress for ..."',
    r"\bcomes? with the package\b": 'write "bundled"',
    r"\b[Ll]icen[c]e\b": 'write "license"',
}


def findings(path: Path) -> list[str]:
    """Return one line for each banned phrase of a file."""
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if "wording: keep" in line:
            continue
        for phrase, advice in BANNED.items():
            if match := re.search(phrase, line):
                lines.append(f'{path.relative_to(ROOT)}:{number}: "{match[0].strip()}": {advice}.')
    return lines


def main() -> int:
    """Print all findings, and return the exit code."""
    command = ["git", "ls-files", "-z", *sys.argv[1:]]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    texts = [name for name in names if Path(name).suffix in SUFFIXES and not name.startswith(ELSEWHERE)]
    found = [line for name in texts if (ROOT / name).is_file() for line in findings(ROOT / name)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
