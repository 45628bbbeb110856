"""`python -m fedjax_sel.cli`."""

import sys

from fedjax_sel.cli import main

sys.exit(main())
