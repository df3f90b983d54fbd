"""Start-up and error reports of all binaries."""

import importlib
import os
import sys
import warnings
from collections.abc import Callable

from absl import app, flags, logging

from official_cmlm.errors import Stopped, UserError
from official_cmlm.user_modules import import_user_module

EXIT_USER_ERROR = 1
# Finished, but without input that could not be read, as `--on_error=skip` allows; 2 is the shell's.
EXIT_SKIPPED = 3
# The reader of our output went away (`… | head`); the shell's own convention for SIGPIPE.
EXIT_BROKEN_PIPE = 141
EXIT_INTERRUPTED = 130


def quiet_tensorflow() -> None:
    """Keeps the libraries' start-up chatter out of the terminal; call before importing them.

    What goes wrong still arrives as an exception. `TF_CPP_MIN_LOG_LEVEL=0` in the environment and
    `--verbosity=0` show it all.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if not flags.FLAGS["verbosity"].present:
        logging.set_verbosity(logging.ERROR)
    warnings.filterwarnings("ignore", category=UserWarning, module="tensorflow")


def announce(message: str) -> None:
    """Prints what the binary begins to do on standard error, where results are not mixed with it.

    A binary calls it within two seconds of its start, and before anything that takes longer.
    """
    print(message, file=sys.stderr, flush=True)


def import_tensorflow() -> None:
    """Imports TensorFlow without its notices, and says so first, as that takes some ten seconds."""
    quiet_tensorflow()
    if "tensorflow" not in sys.modules:
        announce("importing TensorFlow …")
        importlib.import_module("tensorflow")


def run(main: Callable[[list[str]], int | None], arguments: bool = False) -> None:
    """Runs `main(argv)` under absl; turns a `UserError` into one line and exit status 1.

    `Stopped` is a line too, with exit status 0.

    Args:
      main: takes the positional arguments (program name first), returns an exit status or None.
      arguments: whether `main` takes any beside the name; else they are an error.
    """

    def guarded(argv: list[str]) -> int | None:
        if len(argv) > 1 and not arguments:
            print(f"error: unexpected argument {argv[1]!r}; flags start with --", file=sys.stderr)
            return EXIT_USER_ERROR
        try:
            return main(argv)
        except UserError as error:
            print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
            return EXIT_USER_ERROR
        except Stopped as stop:
            print(stop, file=sys.stderr)
            return None
        except BrokenPipeError:
            return EXIT_BROKEN_PIPE
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            return EXIT_INTERRUPTED
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            print(f"error: {where}{error.strerror or error}", file=sys.stderr)
            return EXIT_USER_ERROR

    app.run(guarded)


def required(*names: str) -> None:
    """Marks flags as required, with absl's own message when one is missing."""
    flags.mark_flags_as_required(list(names))


def define_import_module() -> None:
    """Defines `--import_module`, by which a user's own objectives become known."""
    flags.DEFINE_multi_string(
        "import_module",
        [],
        "Python module to import first, as package.module from the current folder or Python's path,"
        " e.g. one that registers an objective of your own; may be repeated. Default: none.",
    )


def import_modules() -> list[str]:
    """Imports the modules of `--import_module` and returns their names.

    They register objectives, so this comes before anything that builds a configuration.

    Raises:
      UserError: for a module that cannot be imported.
    """
    names = flags.FLAGS.import_module
    for name in names:
        import_user_module(
            name, "--import_module takes package.module, seen from the current folder"
        )
    return names
