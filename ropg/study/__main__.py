"""``python -m ropg.study NAME``: run a study, or what is left of it, and write its page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m ropg.study",
        description="Train many variants on several data sets, compare them in pairs, and write tables and plots into "
        "a page. What is finished is not run again, so the same command goes on after an interruption.",
    )
    top.add_argument("name", metavar="NAME", help="full, quick, or a YAML file like ropg/study/full.yaml")
    top.add_argument("--data", type=Path, metavar="DIR", help="the folder with the data sets' files")
    top.add_argument("--runs", type=Path, metavar="DIR", help="runs and logs (default: runs/study-NAME)")
    top.add_argument(
        "--stores", type=Path, metavar="DIR", help="the LLM's texts (default: stores/study-NAME)"
    )
    top.add_argument(
        "--page", type=Path, metavar="FILE", help="the page (default: the study's own, or RUNS/study.md)"
    )
    top.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="runs at once, each with its share of the cores"
    )
    top.add_argument("--only", nargs="+", default=[], metavar="DATASET", help="some of the data sets")
    top.add_argument("--no-run", action="store_true", help="only write the page, from what is finished")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study; the exit status, 1 also where a run failed."""
    arguments = parser().parse_args(argv)
    from ropg.cli import Refused
    from ropg.study.study import conduct

    try:
        failed = conduct(
            arguments.name,
            data=arguments.data,
            runs=arguments.runs,
            stores=arguments.stores,
            page=arguments.page,
            jobs=arguments.jobs,
            only=arguments.only,
            train=not arguments.no_run,
        )
    except (ValueError, OSError, Refused) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command again goes on from here", file=sys.stderr)
        return 130
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
