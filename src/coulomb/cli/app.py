"""The application, and what becomes of its errors."""

import sys
from typing import Annotated, Any

import torch
import typer

import coulomb
from coulomb.cli.console import console, fail, say, with_value
from coulomb.errors import InputError, LostProcessError, NonFiniteError

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
UsageError: Any = typer.BadParameter.__base__  # Typer carries its own copy of click and exports no other name for it


def main() -> None:
    """Entry point: mistakes that the user can mend are one line on stderr and exit code 2."""
    with console():
        try:
            code = app(standalone_mode=False) or 0
        except UsageError as error:
            code = fail(with_value(error.format_message()), 2)
        except InputError as error:
            code = fail(str(error), 2)
        except (NonFiniteError, LostProcessError) as error:
            code = fail(str(error), 1)
        except OSError as error:
            code = fail(f"{error.filename or 'file system'}: {error.strerror or error}", 2)
        except (MemoryError, RuntimeError) as error:
            # PyTorch raises a plain RuntimeError where the CPU has no memory left.
            if not isinstance(error, MemoryError | torch.OutOfMemoryError) and "allocate memory" not in str(error):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            code = fail(f"not enough memory ({reason}); use a smaller image_size, batch_size or cache_gb", 2)
        except (KeyboardInterrupt, typer.Abort):
            code = fail("interrupted", 130)
    sys.exit(code if isinstance(code, int) else 0)


@app.callback(invoke_without_command=True)
def _alone(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="print the version")] = False
) -> None:
    """coulomb: contrastive representation learning, exact at any batch size."""
    if version:
        say(coulomb.__version__)
    elif context.invoked_subcommand is None:
        say(context.get_help())
