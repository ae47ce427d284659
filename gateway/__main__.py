"""The entry of the ``trunkline`` command. It takes the short way to the demo agent, and to gateway/cli.py else."""

import sys


def main() -> None:
    if sys.argv[1:2] == ["demo-agent"]:
        # An agent starts once a session: it does not wait for Typer (0.2 s), let alone for the gateway.
        from adapters.acp.demo import main as demo

        sys.exit(demo(sys.argv[2:]))
    from gateway.cli import cli

    cli(prog_name="trunkline")


if __name__ == "__main__":
    main()
