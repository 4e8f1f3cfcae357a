"""Entry point of `dynagat` and `python -m dynagat`: start the command line if it is installed."""

import sys


def main() -> None:
    try:
        from dynagat.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "dynagat").startswith("dynagat"):
            raise
        sys.exit(f"dynagat: the command line needs {error.name}; run: pip install 'dynagat[suite]'")
    app(prog_name="dynagat")


if __name__ == "__main__":
    main()
