"""The examples can be imported, as by a user who has copied them."""

import sys

from pages import ROOT

sys.path += [str(ROOT / "examples"), str(ROOT / "examples" / "snakemake_scheduler_plugin_flowsched")]
