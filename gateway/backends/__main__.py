"""`python -m gateway.backends > docs/backends.md`"""

import sys

from gateway.backends.page import page

sys.stdout.write(page())
