"""The `vosti` command of the wheel."""
import sys

from ._vosti import command


def main() -> int:
    return command(sys.argv)
