"""The table of scores in the documentation is the registry's."""

import sys
from pathlib import Path

EXTENSIONS = Path(__file__).parents[2] / "docs" / "_ext"


def test_the_table_of_scores_is_todays() -> None:
    sys.path.insert(0, str(EXTENSIONS))
    try:
        import score_table
    finally:
        sys.path.remove(str(EXTENSIONS))
    page = score_table.PAGE.read_text(encoding="utf-8")
    assert score_table.written(page) == page, "run: python docs/_ext/score_table.py"
