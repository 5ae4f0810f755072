"""What tests of the Flower app share."""

from __future__ import annotations

import sys

from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "deploy" / "flower"))
