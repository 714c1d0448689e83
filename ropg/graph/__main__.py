"""``python -m ropg.graph <command>``: statistics of review files, and their split into train, dev and test."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m ropg.graph", description="Look at review files as graphs of users and items."
    )
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser("stats", help="statistics of review files, one row each")
    one.add_argument("files", nargs="+", metavar="FILE", help="a released split file, or a raw table")
    one.add_argument("--json", action="store_true", help="as JSON")
    _fields(one)
    one = commands.add_parser("split", help="split reviews into train, dev and test, users whole")
    one.add_argument("files", nargs="+", metavar="FILE", help="raw tables or released split files")
    one.add_argument("--out", required=True, metavar="DIR", help="where the files and report.json go")
    one.add_argument("--name", default="reviews", metavar="NAME", help="of the files (default: reviews)")
    one.add_argument("--seed", type=int, default=0, metavar="N")
    one.add_argument(
        "--fractions", type=float, nargs=3, default=[0.8, 0.1, 0.1], metavar=("TRAIN", "DEV", "TEST")
    )
    _fields(one)
    return top


def _fields(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--fields",
        nargs="+",
        default=[],
        metavar="OURS=THEIRS",
        help="names of fields in raw tables: user, item, text, title, rating, date",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; the exit status, 1 also where a property of a split does not hold."""
    arguments = parser().parse_args(argv)
    try:
        fields = _map_of(arguments.fields)
        return _stats(arguments, fields) if arguments.command == "stats" else _split(arguments, fields)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    return 1


def _map_of(pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise ValueError(f"--fields {pair}: write OURS=THEIRS, such as item=asin")
    return dict(pair.split("=", 1) for pair in pairs)


def _stats(a: argparse.Namespace, fields: dict[str, str]) -> int:
    from ropg.graph.statistics_text import statistics_json, statistics_of_file, statistics_text

    found = [statistics_of_file(path, fields) for path in a.files]
    print(statistics_json(found) if a.json else statistics_text(found))
    return 0


def _split(a: argparse.Namespace, fields: dict[str, str]) -> int:
    from ropg.graph.splitting import split_files

    report, text = split_files(a.files, a.out, a.name, a.fractions, a.seed, fields)
    print(text)
    return 0 if all(report["checks"].values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
