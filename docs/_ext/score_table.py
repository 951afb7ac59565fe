"""The table of scores in ``docs/metrics/README.md``, made of what the registry knows.

python docs/_ext/score_table.py    writes it again, after a score has been added
"""

from pathlib import Path

from unknot.metrics.registry import METRICS

PAGE = Path(__file__).parents[1] / "metrics" / "README.md"
START, END = "<!-- scores -->\n", "<!-- end of scores -->"
GROUPS = {"disentanglement": "Disentanglement", "downstream": "Downstream", "unsupervised": "Unsupervised"}


def table() -> str:
    """All registered scores of unknot by group, in their order."""
    lines = ["| name | title | better | default | what it is |", "|---|---|---|---|---|"]
    for group, title in GROUPS.items():
        lines.append(f"| **{title}** | | | | |")
        for entry in sorted((e for e in METRICS.values() if e.group == group), key=lambda e: e.rank):
            text = " ".join(entry.description.split())
            lines.append(f"| `{entry.name}` | {entry.title} | {entry.better} | {'yes' * entry.default} | {text} |")
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the table of today."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
