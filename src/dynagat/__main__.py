"""The entry of `dynagat` and `python -m dynagat`: the command line, if its packages are there."""

import sys


def main() -> None:
    try:
        from dynagat.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "dynagat").startswith("dynagat"):
            raise
        hint = "pip install 'dynagat[suite]' installs it"
        sys.exit(f"dynagat: the command line needs {error.name}; {hint}")
    app(prog_name="dynagat")


if __name__ == "__main__":
    main()
