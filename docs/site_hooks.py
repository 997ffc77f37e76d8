"""Put the files of the repository that the documentation links to on its site, below `repository/`.

A link such as `../../config/gateway.yaml` works in a checkout.  The site has no checkout beside it, so it gets a copy
of each file that a page links to outside `docs`.  A link to a directory becomes one to the file that explains it.
"""

import re
from pathlib import Path
from posixpath import normpath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_LINK = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)")
_MAIN_FILES = ("README.md", "kustomization.yaml", "__init__.py")


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text of a page with its links out of `docs` redirected to copies."""
    docs = Path(config.docs_dir)

    def redirected(link: re.Match[str]) -> str:
        path = normpath(f"{Path(page.file.src_uri).parent}/{link[1]}")
        if not path.startswith("../") or not (source := _source(docs.parent / path[3:])):
            return link[0]  # the strict build reports a file that is missing
        uri = f"repository/{source.relative_to(docs.parent).as_posix()}"
        if uri.endswith(".md"):
            uri += ".txt"
        if not files.get_file_from_path(uri):
            files.append(File.generated(config, uri, content=source.read_bytes()))
        return f"]({'../' * page.file.src_uri.count('/')}{uri}"

    return _LINK.sub(redirected, markdown)


def _source(path: Path) -> Path | None:
    """Return the file itself, or the main file of a directory; None if there is no such file."""
    candidates = [path, *(path / name for name in _MAIN_FILES)]
    return next((one for one in candidates if one.is_file()), None)
