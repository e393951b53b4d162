"""Is the built site whole? No page asks the network for anything, no link leads nowhere: ``check_site.py FOLDER``."""

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
    """What a page loads, where its links go, and which anchors it has."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "link" and set(found.get("rel", "").split()) & LOADING_RELS:
            self.loads.append(found.get("href", ""))
        elif "href" in found and tag in ("a", "link"):
            self.links.append(found["href"])
        if tag in LOADS and LOADS[tag] in found:
            self.loads.append(found[LOADS[tag]])


def requests(text: str) -> list[str]:
    """Addresses outside that a style sheet or a page's style would fetch."""
    found = re.findall(r"url\(\s*['\"]?([^'\")]+)", text) + re.findall(r"@import\s+['\"]([^'\"]+)", text)
    return [address for address in found if OUTSIDE.match(address)]


def faults(site: Path) -> list[str]:
    """One line for each request to the network, each link to a file or an anchor that is not there."""
    pages = {path.resolve(): Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path in [*pages, *site.resolve().rglob("*.css")]:
        name = path.relative_to(site.resolve())
        found += [f"{name}: asks the network for {address}" for address in requests(path.read_text(encoding="utf-8"))]
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        found += [f"{name}: asks the network for {address}" for address in page.loads if OUTSIDE.match(address)]
        for address in {*page.loads, *page.links}:
            parts = urlsplit(address)
            if parts.scheme or OUTSIDE.match(address):
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.is_file():
                found.append(f"{name}: {address} leads to no file")
            elif parts.fragment and there in pages and unquote(parts.fragment) not in pages[there].anchors:
                found.append(f"{name}: {address} leads to no anchor")
    return sorted(found) if pages else [f"{site}: no pages"]


if __name__ == "__main__":
    site = Path(sys.argv[1])
    wrong = faults(site)
    print("\n".join(wrong) or f"{site}: {len(list(site.rglob('*.html')))} pages, no request, no broken link")  # noqa: T201
    sys.exit(bool(wrong))
