"""Insert generated text into a page, for all scripts that write tables."""


def fill(page: str, source: str, text: str) -> str:
    """Return the page with the text between the marks that name its source."""
    begin, end = f"<!-- from {source} -->", f"<!-- end of {source} -->"
    before, first, rest = page.partition(begin)
    _, last, after = rest.partition(end)
    if not first or not last:
        raise ValueError(f"The page has no place for the table: {begin} ... {end}")
    return f"{before}{begin}\n{text}\n{end}{after}" if text else f"{before}{begin}\n{end}{after}"
