"""Write PDFs by hand."""


def pdf(*pages, more=b"", count=None, kids=None):
    """Return a PDF with these content streams, one per page."""
    font = b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding>>"
    places = kids or b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(len(pages)))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%b]/Count %d>>" % (places, len(pages) if count is None else count),
        font,
    ]
    for i, content in enumerate(pages):
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>%b>>/Contents %d 0 R>>"
            % (more, 5 + 2 * i)
        )
        objects.append(content if content.startswith(b"<<") else stream(content))
    out, places = b"%PDF-1.7\n", []
    for number, one in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return out + (
        b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (len(objects) + 1, table, len(objects) + 1, len(out))
    )


def stream(content, extra=b""):
    """Return a stream object."""
    return b"<</Length %d%b>>\nstream\n%b\nendstream" % (len(content), extra, content)


def words(text):
    """Return the content stream of a text."""
    return b"BT /F 12 Tf 50 700 Td (%b) Tj ET" % text.encode("windows-1252")
