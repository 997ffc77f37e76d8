"""`python -m gateway.backends > docs/backends.md`"""

import sys

from gateway.backends.page import kinds_page

sys.stdout.write(kinds_page())
