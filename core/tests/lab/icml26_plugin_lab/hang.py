"""A module that is never done with importing itself, except while the index is built."""

import os
import time

if "ICML26_LAB_BUILD" not in os.environ:
    time.sleep(600)

from icml26_plugin_lab.methods import Noop as Noop
