"""What tests of the Flower app share; without flwr there are none."""

from __future__ import annotations

import importlib.util
import sys

from tests.conftest import ROOT

if importlib.util.find_spec("flwr") is None:
    collect_ignore_glob = ["with_flwr_*.py"]
sys.path.insert(0, str(ROOT / "deploy" / "flower"))
