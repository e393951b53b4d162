"""Checks a built site: no page uses the network, no link is broken. Usage: ``check_site.py FOLDER``."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
LOADING_RELS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}
OUTSIDE = re.compile(r"^(?:https?:)?//")


class Page(HTMLParser):
    """The resources that a page loads, its links and its anchors."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collects resources, links and anchors."""
        attributes = {name: value or "" for name, value in attrs}
        self.anchors |= {attributes[name] for name in ("id", "name") if name in attributes}
        if tag == "link" and set(attributes.get("rel", "").split()) & LOADING_RELS:
            self.loads.append(attributes.get("href", ""))
        elif "href" in attributes and tag in ("a", "link"):
            self.links.append(attributes["href"])
        if tag in LOADS and LOADS[tag] in attributes:
            self.loads.append(attributes[LOADS[tag]])


def requests(text: str) -> list[str]:
    """Returns external addresses in the styles of a page or style sheet."""
    addresses = re.findall(r"url\(\s*['\"]?([^'\")]+)", text) + re.findall(r"@import\s+['\"]([^'\"]+)", text)
    return [address for address in addresses if OUTSIDE.match(address)]


def faults(site: Path) -> list[str]:
    """Returns one line per external resource and per link to a missing file or anchor."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    problems = []
    for path in [*pages, *site.resolve().rglob("*.css")]:
        name = path.relative_to(site.resolve())
        problems += [
            f"{name}: loads from the network: {address}" for address in requests(path.read_text(encoding="utf-8"))
        ]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        problems += [f"{name}: loads from the network: {address}" for address in page.loads if OUTSIDE.match(address)]
        for address in {*page.loads, *page.links}:
            parts = urlsplit(address)
            if parts.scheme or OUTSIDE.match(address):
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file():
                problems.append(f"{name}: {address}: no such file")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors:
                problems.append(f"{name}: {address}: no such anchor")
    return sorted(problems) if pages else [f"{site}: no pages"]


if __name__ == "__main__":
    site = Path(sys.argv[1])
    problems = faults(site)
    good = f"{site}: {len(list(site.rglob('*.html')))} pages, no external resources, no broken links"
    print("\n".join(problems) or good)  # noqa: T201
    sys.exit(bool(problems))
