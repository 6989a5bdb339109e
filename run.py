"""One task from one configuration: `python run.py task=train dataset=toy`; `python run.py --help` says more."""

import sys
from pathlib import Path

from fmm.cli import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent / "conf"))
