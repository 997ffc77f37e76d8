"""Test that the documentation builds without a warning, needs no other host, and links to files that exist."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from gateway import __version__
from support import language
from support.paths import ROOT

PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "tests/README.md"]
LOADED = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}


def built(folder):
    """Build the site in a folder."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    environment.pop("COVERAGE_PROCESS_CONFIG", None)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class Loads(HTMLParser):
    """Collect the addresses that a browser loads for a page."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if attributes.get("rel") != "canonical" and (address := attributes.get(LOADED.get(tag))):
            self.found.append(address)


@pytest.mark.smoke
def test_docs_site_builds_with_all_links_and_loads_nothing_from_other_hosts(tmp_path):
    built(tmp_path)
    assert (tmp_path / "search/search_index.json").stat().st_size > 100_000
    for page in tmp_path.rglob("*.html"):
        loads = Loads()
        loads.feed(page.read_text("utf-8"))
        assert [address for address in loads.found if re.match(r"(\w+:)?//", address)] == [], page
    for sheet in tmp_path.rglob("*.css"):
        assert re.findall(r"(?:url\(|@import)\s*[\"']?(?:\w+:)?//[^)]*", sheet.read_text("utf-8")) == [], sheet
    example = "config/gateway.yaml"  # a file outside of the pages that pages link to
    assert (tmp_path / "repository" / example).read_bytes() == (ROOT / example).read_bytes()


def test_example_of_a_recording_has_the_present_version():
    assert f'"gateway": "{__version__}"' in (ROOT / "docs/reference/recordings.md").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_page_links_to_files_that_exist(page):
    file = ROOT / page
    links = re.findall(r"\]\(([^)#\s]+)", file.read_text("utf-8"))
    assert [link for link in links if "://" not in link and not (file.parent / link).exists()] == []


def test_texts_name_pages_that_exist():
    texts = [*language.files(), *ROOT.glob("bench/**/*.py"), ROOT / "Makefile"]
    named = {
        (str(file.relative_to(ROOT)), page)
        for file in texts
        if file.name != "CHANGELOG.md"  # it keeps the paths of its time
        for page in re.findall(r"(?<![\w/.])docs/[\w/.-]+\.(?:md|json|svg|png)\b", file.read_text("utf-8"))
    }
    assert sorted(pair for pair in named if not (ROOT / pair[1]).exists()) == []
